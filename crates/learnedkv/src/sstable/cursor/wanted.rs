//! What a walk will want, and so what is read with the block where it begins.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use super::{Clipped, Walk};
use crate::format::block::Block;
use crate::sstable::index::MAX_READ_BYTES;
use crate::sstable::reader::{Beyond, Table};

/// A page of the device, or of the page cache: less is not read for less.
const PAGE_BYTES: u64 = 4 << 10;

/// What a walk will want from where it is sought.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// So many entries, perhaps.
    pub entries: usize,
    /// None beyond this key, in the direction of the walk: tables and blocks beyond it are not read.
    pub until: Bound<Arc<[u8]>>,
}

impl Wanted {
    /// One entry, or nobody knows.
    pub const ONE: Wanted = Wanted { entries: 1, until: Bound::Unbounded };

    /// The same place to end, of a source from which few entries come.
    pub fn few(&self) -> Wanted {
        Wanted { entries: 1, until: self.until.clone() }
    }

    /// The key beyond which none is wanted.
    pub(super) fn until(&self) -> Option<&[u8]> {
        match &self.until {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        }
    }

    /// Whether no key of `clip` is wanted, for all lie beyond those that are.
    pub(super) fn ends_before(&self, clip: &Clipped, forward: bool) -> bool {
        let Some(until) = self.until() else { return false };
        let properties = clip.table.properties();
        let is_wanted = matches!(self.until, Bound::Included(_));
        if forward {
            let first = properties.smallest.as_slice().max(&clip.lower);
            return if is_wanted { first > until } else { first >= until };
        }
        let (last, upper) = (properties.largest.as_slice(), clip.upper.as_deref());
        (if is_wanted { last < until } else { last <= until })
            || upper.is_some_and(|upper| upper <= until)
    }

    /// Whether no key of the blocks beyond this one is wanted, as the block itself says.
    pub(super) fn ends_in(&self, block: &Block, forward: bool) -> bool {
        self.until().is_some_and(|until| {
            let beyond = if forward { Ordering::Greater } else { Ordering::Less };
            block.entries().place(until) != beyond
        })
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
        let until = self.until();
        if wanted >= page {
            return Beyond { blocks: wanted, most_bytes: MAX_READ_BYTES, until };
        }
        Beyond { blocks: page.saturating_sub(1), most_bytes: 2 * PAGE_BYTES, until }
    }
}
