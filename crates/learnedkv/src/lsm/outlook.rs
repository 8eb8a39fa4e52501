//! What a look at a keyspace of levels goes by ([`super::pick`]), and what it comes to.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::goals::{First, Goal, Turn};
use crate::engine::Health;
use crate::engine::claims::Claim;
use crate::view::Run;

/// So much is written whatever the disk says of its room: what leaves next to nothing gives back all it took,
/// and file systems keep some that they do not tell of.
const LITTLE_BYTES: u64 = 64 << 10;

/// What one compaction does.
pub struct Pick {
    /// When its turn comes.
    pub turn: Turn,
    /// The level that tables are taken from; 0 are the runs.
    pub from: usize,
    /// The level that tables are written to.
    pub to: usize,
    /// What is taken, newest first; the last of them, if it is not empty, from level `to`.
    pub runs: Vec<Run>,
    /// What it works at.
    pub claim: Claim,
    /// The tables go down as they are.
    pub moves: bool,
    /// Older data may lie below.
    pub keep_tombstones: bool,
    /// Values in these segments are written anew.
    pub victims: Arc<BTreeSet<u64>>,
    /// What is newer than a table that is thinned, newest first; else nothing.
    pub above: Vec<Run>,
    /// So much room it takes at the most, bytes; not known where room is not.
    pub room_bytes: u64,
}

/// What a look goes by besides the tables and the claims.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outlook<'a> {
    /// What could not be read is left alone; `None`: as if all could be.
    pub health: Option<&'a Health>,
    /// What somebody waits for.
    pub goal: Option<Goal>,
    /// What goes first; see [`Turn`].
    pub first: First,
    /// `None`: as if there were no end of it.
    pub room: Option<Space>,
    /// How large the disk is that sizes go by; `None`: a large one.
    pub disk_bytes: Option<u64>,
}

/// How much room there is on the disk.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// For what is written, bytes, besides what flushes need.
    pub free_bytes: u64,
    /// Of that, what compactions under way may take.
    pub promised_bytes: u64,
    /// For values that are moved out of mostly dead segments, and the tables that point there, bytes; of that too some may be promised.
    pub moving_bytes: u64,
    /// Whether puts are refused.
    pub is_full: bool,
}

impl Space {
    /// For what is begun now, bytes.
    pub fn left_bytes(&self) -> u64 {
        self.free_bytes.saturating_sub(self.promised_bytes).max(LITTLE_BYTES)
    }

    /// The same for a table that is written anew and gives its place back at once: it may take what values do that are moved.
    pub fn for_thinning(&self) -> u64 {
        self.left_bytes().max(self.moving_left_bytes())
    }

    /// The same for values that are moved.
    pub fn moving_left_bytes(&self) -> u64 {
        self.moving_bytes.saturating_sub(self.promised_bytes / 2)
    }
}

/// What a look came to.
pub enum Found {
    /// There is nothing to do, or others do it.
    Nothing,
    /// This is to be done.
    Work(Box<Pick>),
    /// There is something to do, and no room for it; others who are at work may make some.
    NoRoom,
    /// Somebody waits for something that there is room for but for what was promised to those at work: nothing else is to take it.
    Promised,
}
