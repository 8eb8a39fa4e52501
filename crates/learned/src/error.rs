//! What can go wrong: input that is not sorted, bytes that are not a model.

use std::error::Error;
use std::fmt;

/// Why a builder refused an entry. The entry is not taken; the builder stays as it was before it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A key below the one pushed before it.
    UnsortedKey {
        /// How many entries had been taken before the refused one.
        position: u64,
        /// The key taken last.
        previous: u64,
        /// The refused key.
        found: u64,
    },
    /// A block ordinal below the one pushed before it.
    UnsortedBlock {
        /// How many entries had been taken before the refused one.
        position: u64,
        /// The block ordinal taken last.
        previous: u32,
        /// The refused block ordinal.
        found: u32,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnsortedKey { position, previous, found } => {
                write!(f, "key {found} at position {position} is below its predecessor {previous}")
            }
            Self::UnsortedBlock { position, previous, found } => {
                write!(
                    f,
                    "block {found} at position {position} is below its predecessor {previous}"
                )
            }
        }
    }
}

impl Error for BuildError {}

/// Why bytes were refused: where, what should have stood there, and what did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Byte offset, from the start of the decoded slice, of the field that was refused.
    pub offset: usize,
    /// What should have stood there.
    pub expected: &'static str,
    /// What stood there.
    pub found: Found,
}

/// What a decoder met instead of what it [expected](DecodeError::expected).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// The bytes ended inside the field.
    End,
    /// A readable number with a value that no encoder writes there.
    Number(u64),
    /// A variable-length number longer than 64 bits.
    Overlong,
    /// So many bytes after the last field.
    Trailing(usize),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("the end of the bytes"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Overlong => f.write_str("a number longer than 64 bits"),
            Self::Trailing(bytes) => write!(f, "{bytes} more bytes"),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at offset {}: expected {}, found {}", self.offset, self.expected, self.found)
    }
}

impl Error for DecodeError {}
