//! Snapshots: the database at one time.

use std::ops::RangeBounds;
use std::sync::Arc;

use super::database::Handle;
use super::{Iter, Keyspace};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::SequenceNumber;
use crate::slice::Slice;
use crate::tiered::read;
use crate::view::{KeyspaceView, View};

/// The database as it was when the snapshot was taken, in all keyspaces at once. It keeps the
/// memtables and files it needs until it is dropped.
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

    fn keyspace(&self, keyspace: &Keyspace) -> Result<&Arc<KeyspaceView>> {
        self.view.keyspaces.get(&keyspace.id()).ok_or_else(|| {
            let message = format!("keyspace {:?} is not in the snapshot", keyspace.name());
            Error::new(ErrorKind::NotFound, message)
        })
    }

    /// The value a key had.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `NotFound` if the keyspace was made later.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        read::get(self.keyspace(keyspace)?, key.as_ref(), self.visible)
    }

    /// The entries in `range` as they were. A keyspace made later has none.
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Iter {
        let view = self.keyspace(keyspace).ok().cloned();
        Iter::new(self.handle.clone(), view, self.visible, &range)
    }

    /// All entries as they were.
    pub fn iter(&self, keyspace: &Keyspace) -> Iter {
        self.range::<&[u8]>(keyspace, ..)
    }
}
