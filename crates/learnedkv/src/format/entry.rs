//! The kinds of an entry, and the identifiers that stand in every format.

use crate::error::{Error, ErrorKind, Result};

/// A 56-bit number given to every operation, in the order of the log.
pub type SequenceNumber = u64;

/// The largest sequence number.
pub const MAX_SEQUENCE: SequenceNumber = (1 << 56) - 1;

/// A position in somebody else's log: bytes that mean nothing here, and are not compared.
pub type ExternalPosition = [u8; 16];

/// An external position, and the commit that carried it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedPosition {
    /// The sequence number of the commit's last operation.
    pub sequence: SequenceNumber,
    /// The position.
    pub position: ExternalPosition,
}

/// A keyspace's number, never reused within a database.
pub type KeyspaceId = u64;

/// A table's number, never reused within a database; it names the file.
pub type TableId = u64;

/// The longest key, bytes.
pub const MAX_KEY_BYTES: usize = 64 << 10;

/// What an entry is. All kinds are reserved from the first format version on; a build refuses the
/// ones it cannot serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(dead_code, reason = "reserved: no writer makes some of them yet")]
pub enum Kind {
    /// The payload is the value.
    Value = 1,
    /// The payload says where in a value segment the value stands.
    Pointer = 2,
    /// The key was removed. No payload.
    Tombstone = 3,
    /// All keys from this one up to the payload (exclusive) were removed; without a payload all from
    /// this one on. In the log and memtables only: a table has its ranges in a section of their own.
    RangeTombstone = 4,
    /// The payload is a list of merge operands.
    Merge = 5,
    /// As `Value`, with an expiry time before the value.
    ValueExpiring = 6,
    /// As `Pointer`, with an expiry time before the pointer.
    PointerExpiring = 7,
}

impl Kind {
    /// The kind of a block's entry written as `byte`, if this build serves it.
    ///
    /// # Errors
    /// `Unsupported` for a reserved kind, `Corruption` for any other byte.
    pub fn from_byte(byte: u8) -> Result<Kind> {
        match byte {
            1 => Ok(Kind::Value),
            2 => Ok(Kind::Pointer),
            3 => Ok(Kind::Tombstone),
            4..=7 => Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "entry kind {byte} is reserved for a newer version: open with that version"
                ),
            )),
            _ => Err(Error::corruption(format!("expected an entry kind (1 to 7), found {byte}"))),
        }
    }
}
