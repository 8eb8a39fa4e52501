//! The names of keyspaces that were dropped, so that errors can say them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::lock;
use crate::error::{Error, ErrorKind};
use crate::format::entry::KeyspaceId;

/// So many are remembered, those made last.
const MOST: usize = 1000;

/// The names of keyspaces that were dropped since the open.
#[derive(Debug, Default)]
pub struct Gone(Mutex<BTreeMap<KeyspaceId, Arc<str>>>);

impl Gone {
    /// Remembers a name.
    pub fn note(&self, id: KeyspaceId, name: &Arc<str>) {
        let mut names = lock(&self.0);
        names.insert(id, name.clone());
        if names.len() > MOST {
            names.pop_first();
        }
    }

    /// What whoever asks for a keyspace that is not there is told.
    pub fn error(&self, id: KeyspaceId) -> Error {
        let name = match lock(&self.0).get(&id) {
            Some(name) => format!("{name:?}"),
            None => format!("number {id}"),
        };
        let message = format!(
            "keyspace {name} was dropped, and this handle with it: if there is one of that name again, ask \
             the database for it"
        );
        Error::new(ErrorKind::NotFound, message)
    }
}
