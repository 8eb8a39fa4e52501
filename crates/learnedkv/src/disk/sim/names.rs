//! The names of a simulated disk: what is seen, what is durable, and the changes between.
//!
//! A change persists in a crash, or not, by itself, with one limit: changes of the same name
//! persist in order (a later one never without the earlier ones). A rename is one change, so a
//! crash finds the old names or the new ones, also where it replaces a file. A rename between
//! directories is durable only when both are synced.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::fate::Fate;
use super::random::Random;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// A directory.
    Dir,
    /// The file with this number.
    File(u64),
}

type Map = BTreeMap<Arc<Path>, Node>;

/// One change of names, done in one step.
#[derive(Debug, Clone)]
struct Change {
    /// The name that goes, if it still stands for `node`.
    from: Option<Arc<Path>>,
    /// The name that comes, replacing what has it.
    to: Option<Arc<Path>>,
    node: Node,
    /// The directories that must be synced before it is durable.
    unsynced_dirs: BTreeSet<PathBuf>,
}

impl Change {
    fn names(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.from.iter().chain(&self.to)
    }

    fn apply(&self, map: &mut Map) {
        if let Some(from) = &self.from
            && map.get(from) == Some(&self.node)
        {
            map.remove(from);
        }
        if let Some(to) = &self.to {
            map.insert(Arc::clone(to), self.node);
        }
    }
}

/// All names. Paths are compared by their components, without `.`.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    current: Arc<Map>,
    durable: Arc<Map>,
    pending: Vec<Change>,
}

/// The path as names are kept: without `.` and trailing slashes.
pub(super) fn normal(path: &Path) -> PathBuf {
    path.components().filter(|c| *c != Component::CurDir).collect()
}

fn parent(path: &Path) -> PathBuf {
    path.parent().map(Path::to_path_buf).unwrap_or_default()
}

impl Names {
    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        self.current.get(path).copied()
    }

    /// How many names stand for it.
    pub(super) fn count(&self, node: Node) -> usize {
        self.current.values().filter(|found| **found == node).count()
    }

    /// Whether `path` is a directory: made, or a root (which are always there).
    pub(super) fn is_dir(&self, path: &Path) -> bool {
        path.parent().is_none() || self.get(path) == Some(Node::Dir)
    }

    pub(super) fn parent_is_dir(&self, path: &Path) -> bool {
        path.parent().is_some_and(|p| self.is_dir(p))
    }

    /// The names directly in `dir`, sorted.
    pub(super) fn list(&self, dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = self
            .current
            .keys()
            .filter(|p| p.parent() == Some(dir))
            .filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned()))
            .collect();
        names.sort_unstable();
        names
    }

    pub(super) fn link(&mut self, path: &Path, node: Node) {
        self.change(None, Some(path), node);
    }

    pub(super) fn unlink(&mut self, path: &Path, node: Node) {
        self.change(Some(path), None, node);
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, node: Node) {
        if from != to {
            self.change(Some(from), Some(to), node);
        }
    }

    fn change(&mut self, from: Option<&Path>, to: Option<&Path>, node: Node) {
        let unsynced_dirs = from.into_iter().chain(to).map(parent).collect();
        let change =
            Change { from: from.map(Arc::from), to: to.map(Arc::from), node, unsynced_dirs };
        change.apply(Arc::make_mut(&mut self.current));
        self.pending.push(change);
    }

    /// The names in `dir` are durable from now on.
    pub(super) fn sync_dir(&mut self, dir: &Path) {
        self.settle(|change| {
            change.unsynced_dirs.remove(dir);
            change.unsynced_dirs.is_empty()
        });
    }

    /// The names that a crash leaves. What lies in a directory that is gone is gone with it.
    pub(super) fn after_crash(&self, fate: Fate, random: &mut Random) -> Names {
        let mut left = self.clone();
        left.settle(|_| fate.choose(2, random) == 1);
        let mut found = Map::new();
        // Parents sort before what is in them.
        for (path, &node) in left.durable.iter() {
            let parent = parent(path);
            if parent.parent().is_none() || found.get(parent.as_path()) == Some(&Node::Dir) {
                found.insert(Arc::clone(path), node);
            }
        }
        let found = Arc::new(found);
        Names { current: Arc::clone(&found), durable: found, pending: Vec::new() }
    }

    /// Makes durable the pending changes that `settles` says, except those that depend, by a name,
    /// on an earlier one that stays pending.
    fn settle(&mut self, mut settles: impl FnMut(&mut Change) -> bool) {
        if self.pending.is_empty() {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        let mut held = BTreeSet::new();
        self.pending.retain_mut(|change| {
            if settles(change) && !change.names().any(|n| held.contains(n)) {
                change.apply(durable);
                return false;
            }
            held.extend(change.names().cloned());
            true
        });
    }

    /// The files that have a name now.
    pub(super) fn linked(&self) -> BTreeSet<u64> {
        self.current.values().filter_map(file_number).collect()
    }

    /// The files that have a name now, or may have one after a crash.
    pub(super) fn reachable(&self) -> BTreeSet<u64> {
        let pending = self.pending.iter().map(|c| &c.node);
        let nodes = self.current.values().chain(self.durable.values()).chain(pending);
        nodes.filter_map(file_number).collect()
    }
}

fn file_number(node: &Node) -> Option<u64> {
    match node {
        Node::Dir => None,
        Node::File(number) => Some(*number),
    }
}
