//! What a walk will want, and so what is read with the block where it begins.

use std::sync::Arc;

use super::Walk;
use crate::sstable::index::MAX_READ_BYTES;
use crate::sstable::reader::{Beyond, Table};

/// A page of the device, or of the page cache: less is not read for less.
const PAGE_BYTES: u64 = 4 << 10;

/// What a walk will want from where it is sought.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// So many entries, perhaps.
    pub entries: usize,
    /// None beyond this key, in the direction of the walk: nothing behind its block is read ahead.
    pub until: Option<Arc<[u8]>>,
}

impl Wanted {
    /// One entry, or nobody knows.
    pub const ONE: Wanted = Wanted { entries: 1, until: None };

    /// The same place to end, of a source from which few entries come.
    pub fn few(&self) -> Wanted {
        Wanted { entries: 1, until: self.until.clone() }
    }

    /// What is to be read with the block where a walk begins, perhaps in its middle: a page of the device at least, where
    /// blocks are smaller.
    pub(super) fn beyond(&self, table: &Table, walk: Walk) -> Beyond<'_> {
        let properties = table.properties();
        if walk == Walk::Bulk {
            return Beyond { blocks: 0, most_bytes: 0, until: None };
        }
        let of_bytes = |bytes: u64| {
            (bytes * properties.blocks).checked_div(properties.unpacked_bytes).unwrap_or(0)
        };
        let wanted = match self.entries {
            0 | 1 => 0,
            _ => (self.entries as u64 * properties.blocks).div_ceil(properties.entries.max(1)),
        };
        let (wanted, page) = (wanted.min(of_bytes(MAX_READ_BYTES)), of_bytes(PAGE_BYTES));
        let until = self.until.as_deref();
        if wanted >= page {
            return Beyond { blocks: wanted, most_bytes: MAX_READ_BYTES, until };
        }
        Beyond { blocks: page.saturating_sub(1), most_bytes: 2 * PAGE_BYTES, until }
    }
}
