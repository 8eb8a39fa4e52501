//! Who gets how much of the one memory budget.

use super::Engine;

impl Engine {
    /// Gives the cache what memtables and metadata leave of the budget. Called whenever a memtable is
    /// sealed or tables change.
    pub fn fit_cache(&self) {
        let view = self.view();
        let keyspaces = view.keyspaces.values();
        let metadata = self.metadata_bytes();
        // Active memtables of more than one keyspace are counted as they are.
        let largest = keyspaces.clone().map(|k| k.active.size_bytes()).max().unwrap_or(0);
        let active = keyspaces.clone().map(|k| k.active.size_bytes()).sum::<usize>() - largest;
        let sealed = keyspaces.flat_map(|k| &k.sealed).map(|s| s.memtable.size_bytes());
        let sealed = (sealed.sum::<usize>() + active) as u64;
        self.context.cache.set_capacity_bytes(self.options.cache_bytes(sealed, metadata));
    }

    /// What the tables keep in memory to find keys.
    fn metadata_bytes(&self) -> u64 {
        let view = self.view();
        let tables = view.keyspaces.values().flat_map(|k| k.tables.all());
        tables.map(|t| t.metadata_bytes() as u64).sum()
    }

    /// Whether metadata may grow by `bytes` and still take half the budget at most.
    pub fn has_room_for_metadata(&self, bytes: u64) -> bool {
        self.metadata_bytes() + bytes <= self.options.memory_budget_bytes / 2
    }
}
