//! Snapshots: the database at one time. Reading them is [`super::reads`].

use std::sync::Arc;

use super::Keyspace;
use super::database::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::SequenceNumber;
use crate::view::{KeyspaceView, View};

/// The database as it was when the snapshot was taken, in all keyspaces at once. It keeps the
/// memtables and files it needs until it is dropped.
///
/// Of a keyspace that was made later every read says `NotFound`; one that was dropped since is
/// still there.
#[derive(Debug, Clone)]
pub struct Snapshot {
    handle: Arc<Handle>,
    view: Arc<View>,
    visible: SequenceNumber,
}

impl Snapshot {
    pub(crate) fn new(handle: Arc<Handle>) -> Snapshot {
        let (view, visible) = handle.engine.snapshot();
        Snapshot { handle, view, visible }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) fn visible(&self) -> SequenceNumber {
        self.visible
    }

    pub(crate) fn keyspace(&self, keyspace: &Keyspace) -> Result<&Arc<KeyspaceView>> {
        if !keyspace.is_of(&self.handle) {
            return Err(Error::invalid(format!(
                "keyspace {:?} belongs to another database than the snapshot",
                keyspace.name()
            )));
        }
        self.view.keyspaces.get(&keyspace.id()).ok_or_else(|| {
            let message = format!("keyspace {:?} is not in the snapshot", keyspace.name());
            Error::new(ErrorKind::NotFound, message)
        })
    }
}
