//! Indexes of a table: from a key to a contiguous range of blocks, fetched by one request.
//!
//! One file per kind. A kind's name is the name of its section, so it contains exactly what affects
//! decoding. Whoever reads a table asks [`decode`], and never which kind it is.
//!
//! Contract: a present key lies in the named blocks; an absent key's lower bound lies in them, or is
//! the first entry after them. A model that lies is caught by the blocks' own separators.

use super::partition::{Cut, Limits};
use crate::error::{Error, ErrorKind, Result};

#[cfg(test)]
mod conformance;
mod exact;
pub mod fence;
mod greedy_plr;
mod greedy_plr_plus;
mod stretches;

use exact::{Exact, ExactBuilder};
use fence::{Fence, FenceBuilder};
use greedy_plr::GreedyPlr;
use greedy_plr_plus::GreedyPlrPlus;
use stretches::{Kind, Stretches, StretchesBuilder};

/// So much of a table a lookup reads at once, bytes, or a block if that is longer. Kinds name no more where
/// they can help it; of what names more (a table of an earlier build, an index that lies), blocks are read one
/// by one.
pub const MAX_READ_BYTES: u64 = 64 << 10;

/// What begins the name of an index section.
pub const SECTION_PREFIX: &str = "index:";

/// Which index a table gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexKind {
    /// Always one block: separators and block ends as models with residual bits, chosen together
    /// with where the blocks end. The default: the smallest, and no read is wasted.
    Exact,
    /// Every block's lower separator, in full, searched by halving: the classic.
    Fence,
    /// Greedy-PLR (Xie et al. 2014) over entry positions, at most `epsilon` positions wrong: a range
    /// of blocks, read at once. For comparison.
    GreedyPlr {
        /// The largest error, positions.
        epsilon: u16,
    },
    /// Greedy-PLR+ (LearnedKV) over blocks, at most `epsilon` blocks wrong. For comparison.
    GreedyPlrPlus {
        /// The largest error, blocks.
        epsilon: u16,
    },
}

impl IndexKind {
    /// All kinds, each with its usual epsilon.
    pub const ALL: &[IndexKind] = &[
        IndexKind::Exact,
        IndexKind::Fence,
        IndexKind::GreedyPlr { epsilon: 4 },
        IndexKind::GreedyPlrPlus { epsilon: 0 },
    ];

    /// The kind's name: that of its section.
    pub fn name(self) -> &'static str {
        match self {
            IndexKind::Exact => exact::NAME,
            IndexKind::Fence => fence::NAME,
            IndexKind::GreedyPlr { .. } => GreedyPlr::NAME,
            IndexKind::GreedyPlrPlus { .. } => GreedyPlrPlus::NAME,
        }
    }

    /// The kind written as `text`: its name, or its name, a colon and its epsilon.
    ///
    /// # Errors
    /// `InvalidArgument` listing the names, if there is none such.
    pub fn from_text(text: &str) -> Result<IndexKind> {
        let (name, wanted) = match text.split_once(':') {
            Some((name, epsilon)) => (name, Some(epsilon)),
            None => (text, None),
        };
        let kind = IndexKind::ALL.iter().copied().find(|kind| kind.name() == name);
        let parsed = wanted.map(str::parse::<u16>).transpose().ok();
        match (kind, parsed) {
            (Some(kind), Some(None)) => Ok(kind),
            (Some(IndexKind::GreedyPlr { .. }), Some(Some(epsilon))) => {
                Ok(IndexKind::GreedyPlr { epsilon })
            }
            (Some(IndexKind::GreedyPlrPlus { .. }), Some(Some(epsilon))) => {
                Ok(IndexKind::GreedyPlrPlus { epsilon })
            }
            _ => {
                let names: Vec<_> = IndexKind::ALL.iter().map(ToString::to_string).collect();
                Err(Error::invalid(format!(
                    "expected an index kind ({}), found {text:?}",
                    names.join(", ")
                )))
            }
        }
    }

    /// A builder for a table whose smallest key is `smallest`.
    pub fn builder(self, limits: Limits, smallest: &[u8]) -> Box<dyn IndexBuilder> {
        match self {
            IndexKind::Exact => Box::new(ExactBuilder::new(limits, smallest)),
            IndexKind::Fence => Box::new(FenceBuilder::new(limits, smallest)),
            IndexKind::GreedyPlr { epsilon } => {
                Box::new(StretchesBuilder::<GreedyPlr>::new(limits, smallest, epsilon))
            }
            IndexKind::GreedyPlrPlus { epsilon } => {
                Box::new(StretchesBuilder::<GreedyPlrPlus>::new(limits, smallest, epsilon))
            }
        }
    }
}

impl std::fmt::Display for IndexKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IndexKind::GreedyPlr { epsilon } | IndexKind::GreedyPlrPlus { epsilon } => {
                write!(f, "{}:{epsilon}", self.name())
            }
            IndexKind::Exact | IndexKind::Fence => f.write_str(self.name()),
        }
    }
}

/// The index in a section of that name.
///
/// # Errors
/// `Unsupported` for an unknown name; `Corruption` if the bytes are no such index.
pub fn decode(section: &str, bytes: Vec<u8>) -> Result<Box<dyn Index>> {
    match section.strip_prefix(SECTION_PREFIX) {
        Some(exact::NAME) => Ok(Box::new(Exact::decode(bytes)?)),
        Some(fence::NAME) => Ok(Box::new(Fence::decode(&bytes)?)),
        Some(GreedyPlr::NAME) => Ok(Box::new(Stretches::<GreedyPlr>::decode(&bytes)?)),
        Some(GreedyPlrPlus::NAME) => Ok(Box::new(Stretches::<GreedyPlrPlus>::decode(&bytes)?)),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            format!("table section {section:?} is unknown: a newer version of learnedkv wrote it"),
        )),
    }
}

/// Whether [`decode`] knows a section of that name.
pub fn is_known(section: &str) -> bool {
    let name = section.strip_prefix(SECTION_PREFIX);
    IndexKind::ALL.iter().any(|kind| Some(kind.name()) == name)
}

/// What the index in a section of that name and length usually takes in memory, bytes, if it has so
/// many blocks: known without reading it. It takes less but where single entries fill blocks, or
/// keys have so little in common that few blocks can be described together.
pub fn usual_bytes(section: &str, length: u64, blocks: u64) -> u64 {
    let (decoded, per_block) = match section.strip_prefix(SECTION_PREFIX) {
        Some(exact::NAME) => (length, exact::BLOCK_BYTES),
        Some(fence::NAME) => (length, fence::BLOCK_BYTES),
        // Segments of models are much longer in memory.
        _ => (length.saturating_mul(6), stretches::BLOCK_BYTES),
    };
    decoded.saturating_add(blocks.saturating_mul(per_block)).saturating_add(STRUCT_BYTES)
}

/// What an index takes before its first block, bytes.
const STRUCT_BYTES: u64 = 512;

/// A model's refusal of its bytes, as an error of the engine.
fn refused(name: &str, error: &learned::DecodeError) -> Error {
    Error::corruption(format!("index {name}: {error}"))
}

/// Where blocks start and end that end there, one after another.
fn between(ends: impl Iterator<Item = u64>) -> impl Iterator<Item = (u64, u64)> {
    let mut start = 0;
    ends.map(move |end| (std::mem::replace(&mut start, end), end))
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

/// What an index with models consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Makeup {
    /// Pieces that are described each by itself: a model, or separators in full.
    pub chunks: u64,
    /// Blocks that are found by separators in full.
    pub separated_blocks: u64,
    /// Separators that lie off their chunk's line and are stored by themselves.
    pub exceptions: u64,
}

/// An index in memory. See the module page for the contract.
pub trait Index: Send + Sync + std::fmt::Debug {
    /// How many blocks the table has.
    fn block_count(&self) -> u64;

    /// The first and last block that may hold `key`.
    fn locate(&self, key: &[u8]) -> (u64, u64);

    /// Where a block starts and ends (with its padding) in the file, bytes.
    fn extent(&self, block: u64) -> (u64, u64);

    /// Where all blocks start and end, in order: for less than asking for each, where a kind can do that.
    fn extents(&self) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        Box::new((0..self.block_count()).map(|block| self.extent(block)))
    }

    /// What it consists of; nothing to tell of a kind without models. May look at all of it.
    fn makeup(&self) -> Makeup {
        Makeup::default()
    }

    /// What the index takes in memory, bytes: what `stats` reports as metadata.
    fn size_bytes(&self) -> usize;

    /// What it consists of, for people.
    fn describe(&self) -> String {
        "separators in full".to_owned()
    }
}
