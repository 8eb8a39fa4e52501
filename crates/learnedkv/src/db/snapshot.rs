//! Snapshots: the database at one time. Reading them is [`super::reads`].

use std::sync::Arc;

use super::Keyspace;
use super::database::Handle;
use crate::engine::Pinned;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::SequenceNumber;
use crate::view::KeyspaceView;

/// The database as it was when the snapshot was taken, in all keyspaces at once. It keeps the
/// memtables and files it needs until it is dropped; where memtables that only readers keep take more
/// than an eighth of the memory budget, they are written to files of the snapshot's own; more than a half,
/// where snapshots are so many that this would write many times what it gives back.
///
/// Of a keyspace that was made later every read says `NotFound`; one that was dropped since is
/// still there.
#[derive(Debug, Clone)]
pub struct Snapshot {
    handle: Arc<Handle>,
    pinned: Arc<Pinned>,
}

impl Snapshot {
    pub(crate) fn new(handle: Arc<Handle>) -> Snapshot {
        let pinned = handle.engine.pin();
        Snapshot { handle, pinned }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) fn visible(&self) -> SequenceNumber {
        self.pinned.visible
    }

    pub(crate) fn keyspace(&self, keyspace: &Keyspace) -> Result<Arc<KeyspaceView>> {
        if !keyspace.is_of(&self.handle) {
            return Err(Error::invalid(format!(
                "keyspace {:?} belongs to another database than the snapshot",
                keyspace.name()
            )));
        }
        self.pinned.keyspace(keyspace.id()).ok_or_else(|| {
            let message = format!("keyspace {:?} is not in the snapshot", keyspace.name());
            Error::new(ErrorKind::NotFound, message)
        })
    }
}
