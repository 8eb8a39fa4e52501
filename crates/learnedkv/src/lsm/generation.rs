//! Which generation fresh tables belong to; what a generation is, is [`Generation`]'s.

use std::sync::Arc;

use crate::engine::Engine;
use crate::options::Store;
use crate::sstable::generation::Generation;
use crate::view::KeyspaceView;

/// The generation that takes the keys of what is flushed or merged now, about `keys` of them: that
/// of the newest run that has one, but none that the frozen part has too; else a new one. `None`:
/// runs are to have no filters, or become levels soon.
pub fn now(engine: &Engine, view: &KeyspaceView, keys: u64) -> Option<Arc<Generation>> {
    let options = &view.options;
    if options.chosen_store() != Store::Tiered || options.lsm_table().filter.is_none() {
        return None;
    }
    let tables = &view.tables;
    let frozen = || tables.frozen.iter().flat_map(|frozen| frozen.runs.iter().flatten());
    let is_frozen = |generation: &Arc<Generation>| {
        frozen().filter_map(|table| table.generation()).any(|other| Arc::ptr_eq(other, generation))
    };
    let mut fresh = tables.runs.iter().flatten().filter_map(|table| table.generation());
    let found = fresh.find(|generation| !is_frozen(generation)).cloned();
    Some(found.unwrap_or_else(|| Arc::new(Generation::new(&engine.context, keys as usize))))
}
