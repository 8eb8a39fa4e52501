//! Indexes of a table: from a key to a contiguous range of blocks, fetched by one request.
//!
//! One file per kind. A kind's name is the name of its section, so it contains exactly what affects
//! decoding. Whoever reads a table asks [`decode`], and never which kind it is.
//!
//! Contract: a present key lies in the named blocks; an absent key's lower bound lies in them, or is
//! the first entry after them. A model that lies is caught by the blocks' own separators.

use super::partition::{Cut, Limits};
use crate::error::{Error, ErrorKind, Result};

pub mod fence;

/// What begins the name of an index section.
pub const SECTION_PREFIX: &str = "index:";

/// Which index a table gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexKind {
    /// Every block's lower separator, in full, searched by halving: the classic.
    Fence,
}

impl IndexKind {
    /// All kinds.
    pub const ALL: &[IndexKind] = &[IndexKind::Fence];

    /// The kind's name, as it stands in options and sections.
    pub fn name(self) -> &'static str {
        match self {
            IndexKind::Fence => fence::NAME,
        }
    }

    /// The kind of that name.
    ///
    /// # Errors
    /// `InvalidArgument` listing the names, if there is none.
    pub fn from_name(name: &str) -> Result<IndexKind> {
        IndexKind::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
            let names: Vec<_> = IndexKind::ALL.iter().map(|kind| kind.name()).collect();
            Error::invalid(format!("expected an index kind ({}), found {name:?}", names.join(", ")))
        })
    }

    /// A builder for a table whose smallest key is `smallest`.
    pub fn builder(self, limits: Limits, smallest: &[u8]) -> Box<dyn IndexBuilder> {
        match self {
            IndexKind::Fence => Box::new(fence::FenceBuilder::new(limits, smallest)),
        }
    }
}

/// The index in a section of that name.
///
/// # Errors
/// `Unsupported` for an unknown name; `Corruption` if the bytes are no such index.
pub fn decode(section: &str, bytes: Vec<u8>) -> Result<Box<dyn Index>> {
    match section.strip_prefix(SECTION_PREFIX) {
        Some(fence::NAME) => Ok(Box::new(fence::Fence::decode(&bytes)?)),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            format!("table section {section:?} is unknown: a newer version of learnedkv wrote it"),
        )),
    }
}

/// Makes the index of a table while it is written, and decides where its blocks end.
pub trait IndexBuilder: Send {
    /// How many bytes of entries are to be gathered before [`IndexBuilder::cut`].
    fn wanted_bytes(&self) -> usize;

    /// Decides the next block ends. `keys` and `sizes` are the entries not yet in a block;
    /// `end_of_table` says that no others follow: then all of them are cut in the end. What is not
    /// cut is offered again, together with more. Unless `end_of_table`, at least one entry is left.
    fn cut(&mut self, keys: &[&[u8]], sizes: &[u32], end_of_table: bool) -> Vec<Cut>;

    /// The next block, of those cut, was written and ends (with its padding) at `end_bytes`.
    fn push_end(&mut self, end_bytes: u64);

    /// The bytes of the section.
    ///
    /// # Errors
    /// A broken builder's; none in what is here.
    fn finish(self: Box<Self>) -> Result<Vec<u8>>;
}

/// An index in memory. See the module page for the contract.
pub trait Index: Send + Sync + std::fmt::Debug {
    /// The kind's name.
    fn name(&self) -> &'static str;

    /// How many blocks the table has.
    fn block_count(&self) -> u64;

    /// The first and last block that may hold `key`.
    fn locate(&self, key: &[u8]) -> (u64, u64);

    /// Where a block starts and ends (with its padding) in the file, bytes.
    fn extent(&self, block: u64) -> (u64, u64);

    /// What the index takes in memory, bytes: what `stats` reports as metadata.
    fn size_bytes(&self) -> usize;
}
