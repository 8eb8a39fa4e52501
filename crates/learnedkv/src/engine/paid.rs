//! Keyspaces of which reads may have paid for settling them, or for merging their runs ([`crate::view::Rent`]). Of all that are idle
//! nobody is to be asked: there may be very many.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::{Engine, lock};
use crate::format::entry::KeyspaceId;

/// These.
#[derive(Debug, Default)]
pub struct AllPaid(Mutex<BTreeSet<KeyspaceId>>);

impl Engine {
    /// Somebody should look whether reads of a keyspace have paid enough: once they say so ([`crate::view::Rent::pay`]).
    pub fn note_paid(&self, id: KeyspaceId) {
        lock(&self.paid.0).insert(id);
        self.executor.notify();
    }

    /// Those of which somebody should look. Where it was found that not enough was paid they are forgotten until more is.
    pub fn paid(&self) -> BTreeSet<KeyspaceId> {
        let mut paid = lock(&self.paid.0);
        // Who has paid meanwhile, and was not seen here, comes after this.
        let view = self.view();
        paid.retain(|id| {
            let keyspace = view.keyspaces.get(id);
            keyspace.is_some_and(|k| k.rent.is_asked() || k.merging.is_asked())
        });
        paid.clone()
    }
}
