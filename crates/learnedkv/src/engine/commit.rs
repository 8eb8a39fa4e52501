//! A commit, and how its memtables take it.

use std::sync::Arc;

use super::{Engine, Streamed, streams};
use crate::error::Result;
use crate::format::batch::Ops;
use crate::format::entry::{CarriedPosition, ExternalPosition, KeyspaceId, Kind, SequenceNumber};
use crate::memory::Shared;
use crate::memtable::Memtable;

/// The operations of one commit.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    /// Encoded by [`crate::format::batch`].
    pub payload: &'a Shared,
    /// How many operations it holds.
    pub count: u32,
    /// The keyspaces it changes, each once.
    pub keyspaces: &'a [KeyspaceId],
    /// The values that its pointers lead to.
    pub streamed: &'a [Streamed],
    /// Where it stands in somebody else's log.
    pub external_position: Option<ExternalPosition>,
}

impl Commit<'_> {
    /// What it puts, with the values that its pointers lead to.
    pub(super) fn bytes(&self) -> u64 {
        let streamed = self.streamed.iter().map(Streamed::length_bytes).sum::<u64>();
        self.payload.len() as u64 + streamed
    }
}

impl Engine {
    /// Puts a commit that is published, as operations from `first` to `last`, into its memtables.
    pub(super) fn apply(
        &self,
        commit: &Commit<'_>,
        memtables: &[(KeyspaceId, Arc<Memtable>)],
        first: SequenceNumber,
        last: SequenceNumber,
    ) -> Result<()> {
        for (sequence, op) in (first..).zip(Ops::new(commit.payload)) {
            let op = op.expect("a payload that this process encoded");
            let memtable = memtables.iter().find(|(id, _)| *id == op.keyspace);
            let (_, memtable) = memtable.expect("the commit names its keyspaces");
            if op.kind == Kind::Pointer {
                streams::hold_segment(self, memtable, &op, commit.streamed)?;
            }
            if memtables.len() == 1 {
                memtable.insert(commit.payload, &op, sequence);
            } else {
                // One keyspace's memtable must not keep alive what belongs to another's.
                memtable.insert_copy(&op, sequence);
            }
        }
        if let Some(position) = commit.external_position {
            let carried = CarriedPosition { sequence: last, position };
            let visible = self.log.visible();
            memtables.iter().for_each(|(_, memtable)| memtable.positions.note(carried, visible));
        }
        Ok(())
    }
}
