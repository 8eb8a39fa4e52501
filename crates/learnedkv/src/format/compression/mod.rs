//! Compression of data blocks and of values kept apart: bytes to fewer bytes, and back. One trait, a file per kind, one
//! battery. What the bytes of a kind are is written in the documents named at [`Compression`].
//!
//! Whoever writes a table asks [`Compression::codec`] for one; whoever reads one asks [`Codecs`], by
//! the mark in a block's header, and never which it is. A block says itself how it is compressed: a
//! table may hold blocks of several kinds, and does, since a block that hardly shrinks is stored raw.
//!
//! Both sides know how long the raw bytes are: a block's header says so. Nobody believes in more than
//! [`MOST_EXPANSION`] times what is stored, so that damage cannot ask for memory out of proportion.

#[cfg(test)]
mod conformance;
mod lz4;
#[cfg(feature = "zstd")]
mod zstd;

use std::sync::{Mutex, PoisonError};

use crate::error::{Error, ErrorKind, Result};

/// The mark of a block that is stored as it is.
pub const RAW: u8 = 0;

/// Raw bytes per compressed byte, at most. It is what lz4 can reach (a byte of its format stands for
/// 255 bytes); a zstd block of nothing but zeros, which could be shorter, is filled up to it.
pub const MOST_EXPANSION: usize = 255;

/// zstd's levels: above 19 a context takes hundreds of MiB.
const ZSTD_LEVELS: std::ops::RangeInclusive<u8> = 1..=19;
/// The level that is meant if none is said: zstd's own default.
const ZSTD_LEVEL: u8 = 3;

/// How the data blocks of new tables are compressed, and values that are kept apart from their keys.
///
/// A block or a value that would not become an eighth shorter is stored as it is. Whatever is chosen, tables
/// that were written otherwise go on being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Blocks are stored as they are: the default. Right where values are compressed or encrypted
    /// already, where reads are cold and small, and where space is not what is short.
    #[default]
    None,
    /// LZ4 in its block format (`lz4_Block_format.md` of the LZ4 project): some microseconds a block
    /// to write, about one to read.
    Lz4,
    /// Zstandard (RFC 8878; feature `zstd`): smaller than LZ4, and several times slower both ways.
    /// Worth it for settled data, which is written seldom.
    Zstd {
        /// How hard it tries, 1 to 19; 3 is usual. Reading costs the same for all.
        level: u8,
    },
}

impl Compression {
    /// All kinds that this build has, zstd at its usual level.
    pub const ALL: &[Compression] = &[
        Compression::None,
        Compression::Lz4,
        #[cfg(feature = "zstd")]
        Compression::Zstd { level: ZSTD_LEVEL },
    ];

    /// The kind's name, without its level.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd { .. } => "zstd",
        }
    }

    /// The compression written as `text`: `none`, `lz4`, `zstd`, or `zstd:LEVEL`.
    ///
    /// # Errors
    /// `InvalidArgument` saying what there is, if this is not it.
    pub fn from_text(text: &str) -> Result<Compression> {
        let found = match text {
            "none" => Some(Compression::None),
            "lz4" => Some(Compression::Lz4),
            "zstd" => Some(Compression::Zstd { level: ZSTD_LEVEL }),
            _ => text
                .strip_prefix("zstd:")
                .and_then(|level| level.parse().ok())
                .map(|level| Compression::Zstd { level }),
        };
        match found {
            Some(found) => found.check().map(|()| found),
            None => Err(Error::invalid(format!(
                "expected a compression (none, lz4, zstd, zstd:1 to zstd:19), found {text:?}"
            ))),
        }
    }

    /// Whether this build can do it.
    ///
    /// # Errors
    /// `InvalidArgument` for a level that zstd has not, or zstd in a build without it.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Compression::Zstd { .. } if cfg!(not(feature = "zstd")) => Err(Error::invalid(
                "compression zstd: this build is without it; build with the feature `zstd`",
            )),
            Compression::Zstd { level } if !ZSTD_LEVELS.contains(&level) => Err(Error::invalid(
                format!("compression zstd: expected a level 1 to 19, found {level}"),
            )),
            _ => Ok(()),
        }
    }

    /// What compresses so; `None`: nothing does.
    pub(crate) fn codec(self) -> Option<Box<dyn Codec>> {
        match self {
            Compression::None => None,
            Compression::Lz4 => Some(Box::<lz4::Lz4>::default()),
            #[cfg(feature = "zstd")]
            Compression::Zstd { level } => Some(Box::new(zstd::Zstd::new(level))),
            #[cfg(not(feature = "zstd"))]
            Compression::Zstd { .. } => None, // `check` has refused it
        }
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Compression::Zstd { level } => write!(f, "{}:{level}", self.name()),
            Compression::None | Compression::Lz4 => f.write_str(self.name()),
        }
    }
}

/// Compresses and decompresses; keeps what it needs for the next time.
pub trait Codec: Send {
    /// What stands in the header of its blocks.
    fn mark(&self) -> u8;

    /// Appends `raw`, compressed, to `out`, unless that takes more than `most_bytes`: then `out` is
    /// as before, and the answer is false.
    fn compress(&mut self, raw: &[u8], most_bytes: usize, out: &mut Vec<u8>) -> bool;

    /// Fills `raw` with what was compressed.
    ///
    /// # Errors
    /// `Corruption` if `stored` is not what [`Codec::compress`] makes of so many bytes.
    fn decompress(&mut self, stored: &[u8], raw: &mut [u8]) -> Result<()>;
}

/// The codec whose blocks are marked `mark`.
///
/// # Errors
/// `Unsupported` if this build has none such.
fn codec_of(mark: u8) -> Result<Box<dyn Codec>> {
    match mark {
        lz4::MARK => Ok(Box::<lz4::Lz4>::default()),
        #[cfg(feature = "zstd")]
        zstd::MARK => Ok(Box::new(zstd::Zstd::new(ZSTD_LEVEL))),
        _ => Err(unsupported(mark)),
    }
}

/// Whether this build reads blocks so marked.
///
/// # Errors
/// `Unsupported` if it does not.
pub fn check_mark(mark: u8) -> Result<()> {
    match mark {
        RAW | lz4::MARK => Ok(()),
        #[cfg(feature = "zstd")]
        zstd::MARK => Ok(()),
        _ => Err(unsupported(mark)),
    }
}

#[cold]
fn unsupported(mark: u8) -> Error {
    let (what, why) = match mark {
        2 => ("zstd", "build learnedkv with the feature `zstd`"),
        _ => ("unknown", "a newer version of learnedkv wrote it"),
    };
    Error::new(ErrorKind::Unsupported, format!("compression {mark} ({what}): {why}"))
}

/// Codecs of a kind that wait for the next block; more than this are given back. One of zstd takes
/// about 100 KiB.
const KEPT_CODECS: usize = 8;

/// Codecs for readers, shared by all threads: as many are made as decompress at a time.
#[derive(Default)]
pub struct Codecs(Mutex<Vec<Box<dyn Codec>>>);

impl std::fmt::Debug for Codecs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Codecs({} idle)", self.idle().len())
    }
}

impl Codecs {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn Codec>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `raw` with what the codec marked `mark` made `stored` of.
    ///
    /// # Errors
    /// `Unsupported` for a mark that this build does not know; as [`Codec::decompress`].
    pub fn decompress(&self, mark: u8, stored: &[u8], raw: &mut [u8]) -> Result<()> {
        let mut idle = self.idle();
        let kept = idle.iter().rposition(|codec| codec.mark() == mark);
        let kept = kept.map(|at| idle.swap_remove(at));
        drop(idle);
        let mut codec = kept.map_or_else(|| codec_of(mark), Ok)?;
        let done = codec.decompress(stored, raw);
        let mut idle = self.idle();
        if idle.len() < KEPT_CODECS {
            idle.push(codec);
        }
        done
    }
}

/// A codec's complaint about what is stored.
#[cold]
fn refused(name: &str, complaint: &dyn std::fmt::Display) -> Error {
    Error::corruption(format!("{name}: {complaint}"))
}

/// Fewer or more bytes than there were.
#[cold]
fn wrong_length(name: &str, expected: usize, found: usize) -> Error {
    Error::corruption(format!("{name}: expected {expected} bytes once decompressed, found {found}"))
}
