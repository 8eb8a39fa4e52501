//! What an iterator reads from, and who keeps it.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::Guard;

use crate::engine::Pinned;
use crate::view::KeyspaceView;

/// The keyspace that an iterator reads.
pub(super) enum Pin {
    /// As it was when the iterator was made.
    Own(Arc<KeyspaceView>),
    /// As it is shown: of the same content, its memtables perhaps tables by now.
    Known(Arc<Pinned>),
}

/// What a [`Pin`] shows, kept for a step.
pub(super) enum At<'a> {
    Own(&'a Arc<KeyspaceView>),
    Known(Guard<Arc<KeyspaceView>>),
}

impl Pin {
    #[inline]
    pub fn view(&self) -> At<'_> {
        match self {
            Pin::Own(view) => At::Own(view),
            Pin::Known(pinned) => At::Known(pinned.only()),
        }
    }
}

impl Deref for At<'_> {
    type Target = Arc<KeyspaceView>;

    #[inline]
    fn deref(&self) -> &Arc<KeyspaceView> {
        match self {
            At::Own(view) => view,
            At::Known(view) => view,
        }
    }
}
