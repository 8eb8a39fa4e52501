//! Warming: blocks that take the place of cached ones are at hand too, so that what is asked for often is not
//! read anew after each sweep. (DESIGN section 8.)
//!
//! Only of tables whose blocks are not lent where the system holds them: what was just written is there anyway. A hint,
//! which may hold up the step that wrote the table, and all who wait for it, no longer than some thousand
//! reads take.

use super::{Caching, Table};
use crate::error::Result;
use crate::format::block::Block;

/// For so many cached blocks of the tables replaced by one step others are read.
pub const MOST_WARMED: u64 = 4096;

impl Table {
    /// Reads, of this table that was just written, the blocks of keys with which cached blocks of
    /// `replaced` begin and end, while any are `left`. What cannot be read is left to whoever asks for it.
    pub fn warm_from(&self, replaced: &Table, left: &mut u64) {
        let (mine, theirs) = (self.properties(), replaced.properties());
        let apart = mine.largest < theirs.smallest || theirs.largest < mine.smallest;
        if apart || self.is_lent() || self.block_count() == 0 || replaced.block_count() == 0 {
            return;
        }
        let _ = self.warm(replaced, left);
    }

    fn warm(&self, replaced: &Table, left: &mut u64) -> Result<()> {
        let (loan, their_loan) = (self.borrow(Caching::Leave)?, replaced.borrow(Caching::Leave)?);
        let (mine, index) = (self.with(&loan), replaced.with(&their_loan).index);
        let within = &self.properties().smallest..=&self.properties().largest;
        let first = index.locate(within.start()).0;
        let last = index.locate(within.end()).1.min(replaced.block_count() - 1);
        for ordinal in first..=last {
            if *left == 0 {
                break;
            }
            let Some(block) = self.context.cache.peek(replaced.record.id, ordinal) else {
                continue;
            };
            *left -= 1;
            for key in ends(&block)?.iter().filter(|key| within.contains(key)) {
                mine.find_block(key, Caching::Fill)?;
            }
        }
        Ok(())
    }
}

/// The first and the last key of a block.
fn ends(block: &Block) -> Result<Vec<Vec<u8>>> {
    let entries = block.entries();
    let key = |at| Ok([entries.prefix(), entries.entry(at)?.key_suffix].concat());
    let last = entries.count().checked_sub(1);
    last.map_or_else(|| Ok(Vec::new()), |last| Ok(vec![key(0)?, key(last)?]))
}
