//! Which generation fresh tables belong to; what a generation is, is [`Generation`]'s.

use std::sync::Arc;

use crate::engine::Engine;
use crate::options::Store;
use crate::sstable::generation::Generation;
use crate::view::KeyspaceView;

/// So many flushes the first part of a generation that begins with a flush has room for.
const FIRST_FLUSHES: u64 = 4;

/// The generation that takes the about `keys` keys that are flushed now: that of the newest run that has
/// one, but none that the frozen part has too, nor one without room for them; else a new one. `None`:
/// runs are to have no filters, or become levels soon.
pub fn of_flush(engine: &Engine, view: &KeyspaceView, keys: u64) -> Option<Arc<Generation>> {
    now(engine, view, keys, keys.saturating_mul(FIRST_FLUSHES))
}

/// As [`of_flush`], of what a merge writes, or of runs that are there. Nothing like it comes soon after.
pub fn of_merge(engine: &Engine, view: &KeyspaceView, keys: u64) -> Option<Arc<Generation>> {
    now(engine, view, keys, keys)
}

fn now(
    engine: &Engine,
    view: &KeyspaceView,
    keys: u64,
    first_keys: u64,
) -> Option<Arc<Generation>> {
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
    let newest = fresh.find(|generation| !is_frozen(generation));
    let found = newest.filter(|generation| generation.has_room_for(keys as usize)).cloned();
    Some(found.unwrap_or_else(|| Arc::new(Generation::new(&engine.context, first_keys as usize))))
}
