//! When a sweep is due, and when another follows.
//!
//! What a sweep empties it chooses before it begins, and no more than may take space twice for as long ([`debt::victims`]). What it
//! settles makes other value segments dead, and perhaps nothing is fresh for long. So value segments are emptied though nothing
//! is:
//! * by a sweep of its own, where there is more garbage than may be;
//! * by another behind one that somebody waits for, and so on until none is left of the segments that were mostly dead when the
//!   first was over, or one has given nothing back. What writers make dead meanwhile is for who asks next.
//!
//! A segment that a sweep was to empty and that stayed (a table that cannot be read points there, or there was no room) makes no
//! sweep due by itself: or one would follow the other for ever. Nor does one that there is no room to empty.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::debt::{self, Choice, Debt};
use super::super::price;
use super::SettleJob;
use super::full;
use super::hold::Sweeping;
use crate::engine::{Engine, lock};
use crate::error::{Error, ErrorKind, MAKE_ROOM};
use crate::format::entry::KeyspaceId;
use crate::lsm::merge;
use crate::options::Store;
use crate::view::{KeyspaceView, Question, View};

/// The keyspaces in which something may be due, by what they hold or because reads have paid or somebody asked. All others
/// are idle, and not looked at: there may be very many. On a full disk all are that have anything to settle.
pub(super) fn may_be_due(engine: &Engine, view: &View) -> BTreeSet<KeyspaceId> {
    let keyspaces = &view.keyspaces;
    let mut ids = engine.paid();
    ids.extend(lock(&engine.conversions).wanted().filter(|id| keyspaces.contains_key(id)));
    ids.extend(keyspaces.answering(Question::Settles, 0, may_settle).iter().map(|k| k.id));
    if engine.ballast.is_given_up() {
        ids.extend(keyspaces.unsettled().map(|k| k.id));
    }
    ids.retain(|id| keyspaces.get(id).is_some_and(|k| k.options.chosen_store() == Store::Tiered));
    ids
}

/// Whether something may be to be settled or merged in a keyspace by what it holds, as far as a full disk does not matter.
fn may_settle(keyspace: &KeyspaceView) -> bool {
    let (tables, options) = (&keyspace.tables, &keyspace.options);
    if options.chosen_store() != Store::Tiered {
        return false;
    }
    let is_owed = || {
        let debt = Debt::of(tables);
        debt.is_due(options, false) || debt.fresh == 0 && debt.is_too_much(options)
    };
    tables.frozen.is_some() || tables.runs.len() > merge::MAX_RUNS || is_owed()
}

/// Whether a sweep of a keyspace is due.
pub(super) fn is_due(engine: &Engine, keyspace: &KeyspaceView) -> bool {
    engine.options.automatic_conversion
        && (is_due_for_space(engine, keyspace) || price::is_due(engine, keyspace))
}

/// Whether it is, whatever reads have paid.
pub(super) fn is_due_for_space(engine: &Engine, keyspace: &KeyspaceView) -> bool {
    let (tables, options) = (&keyspace.tables, &keyspace.options);
    let (debt, full) = (Debt::of(tables), engine.ballast.is_given_up());
    let gives_back = || {
        let choice = choice(engine, keyspace, BTreeSet::new(), false);
        !debt::victims(tables, options, &choice).is_subset(&choice.kept)
    };
    debt.is_due(options, full)
        || debt.fresh == 0 && !full && debt.is_too_much(options) && gives_back()
}

/// What matters beside gain where a sweep chooses the value segments that it empties. One of nothing fresh that nobody `asked` for
/// leaves room for what is put meanwhile.
pub(super) fn choice(
    engine: &Engine,
    keyspace: &KeyspaceView,
    first: BTreeSet<u64>,
    asked: bool,
) -> Choice {
    let kept = lock(&engine.conversions).kept(keyspace.id);
    // And what a sweep takes that moves nothing.
    let options = &engine.options;
    let meanwhile = options.log_segment_bytes + options.memtable_bytes as u64;
    let beside = meanwhile + 2 * keyspace.options.partition();
    let room = engine.free_bytes().map(|free| {
        // Half of it for tables, as on a full disk.
        free.saturating_sub(beside).max(if asked { free / 2 } else { 0 })
    });
    Choice { first, kept, room }
}

/// Whether a keyspace of the tiered store has something to be merged or settled, or somebody asked for that.
pub fn is_busy(engine: &Engine, view: &View) -> bool {
    let waits = |keyspace: &Arc<KeyspaceView>| {
        let tables = &keyspace.tables;
        tables.frozen.is_some()
            || tables.runs.len() > merge::MAX_RUNS
            || is_due(engine, keyspace)
            || price::is_merge_due(engine, keyspace)
    };
    let is_wanted = lock(&engine.conversions).wanted().any(|id| view.keyspaces.contains_key(&id));
    is_wanted || may_be_due(engine, view).iter().filter_map(|id| view.keyspaces.get(id)).any(waits)
}

/// What a sweep that is over has left of the value segments that were mostly dead when the first of those was over that it follows.
fn left(keyspace: &KeyspaceView, over: &Sweeping) -> BTreeSet<u64> {
    let mut left = debt::settled_and_mostly_dead(&keyspace.tables, &keyspace.options);
    left.retain(|id| over.to_empty.as_ref().is_none_or(|before| before.contains(id)));
    left
}

/// Whether one of these value segments would be emptied.
fn goes(keyspace: &KeyspaceView, segments: &BTreeSet<u64>, choice: &Choice) -> bool {
    !debt::victims(&keyspace.tables, &keyspace.options, choice).is_disjoint(segments)
}

fn no_room(engine: &Engine, keyspace: &KeyspaceView, segments: usize) -> Error {
    let free = engine.disk().room(engine.dir()).map_or(0, |room| room.free_bytes);
    let message = format!(
        "keyspace {:?} is settled, but of its value segments {segments} {} that are mostly dead: {free} bytes are free here, \
         too few to empty one more; {MAKE_ROOM}",
        keyspace.name,
        if segments == 1 { "stays" } else { "stay" }
    );
    Error::new(ErrorKind::DiskFull, message).at_path(engine.dir()).advise(String::new)
}

impl SettleJob {
    /// Whether a sweep has value segments to empty, though nothing is fresh: where somebody waits for it, or it is due.
    pub(super) fn empties_segments(&self, keyspace: &KeyspaceView) -> bool {
        let is_wanted = lock(&self.engine.conversions).is_wanted(keyspace.id);
        match (self.engine.ballast.is_given_up(), is_wanted) {
            (true, is_wanted) => is_wanted && !self.victims(keyspace, 0).segments.is_empty(),
            (false, true) => {
                let choice = choice(&self.engine, keyspace, BTreeSet::new(), true);
                !debt::victims(&keyspace.tables, &keyspace.options, &choice).is_empty()
            }
            (false, false) => is_due(&self.engine, keyspace),
        }
    }

    /// Whether another sweep follows one that is over.
    pub(super) fn sweeps_again(&self, at: KeyspaceId, over: &Sweeping) -> bool {
        if over.course.is_none() {
            return false;
        }
        let view = self.engine.view();
        let Some(keyspace) = view.keyspaces.get(&at) else { return false };
        // It may be full no more by what this one gave back.
        let to_empty = match self.engine.retake_ballast() {
            false => self.follows_on_full_disk(keyspace, over).then(|| over.to_empty.clone()),
            true => self.left_to_empty(keyspace, over).map(Some),
        };
        let Some(to_empty) = to_empty else { return false };
        lock(&self.shared).sweeps.insert(at, Sweeping::following(over, to_empty));
        true
    }

    /// What another sweep is to empty behind one that is over, of what is settled alone. `None`: none follows.
    fn left_to_empty(&self, keyspace: &KeyspaceView, over: &Sweeping) -> Option<BTreeSet<u64>> {
        if !lock(&self.engine.conversions).is_awaited(keyspace.id, over.covers) {
            return None;
        }
        let mut left = left(keyspace, over);
        let gave_none = over.to_empty.as_ref().is_some_and(|before| left.len() >= before.len());
        // On a full disk it empties others, if those have room.
        if gave_none && !(over.is_on_full_disk && full::made_room(keyspace, over)) {
            return None;
        }
        let kept = over.kept(&keyspace.tables.segments);
        left.retain(|id| !kept.contains(id));
        // One of them at least is to go.
        let choice = choice(&self.engine, keyspace, left.clone(), true);
        goes(keyspace, &left, &choice).then_some(left)
    }

    /// What whoever waits for a sweep that is over is told, if not all is well: what could not be opened, and stays; or that value
    /// segments stay for want of room. (Of a full disk everybody knows.)
    pub(super) fn to_tell(&self, keyspace: &KeyspaceView, over: &Sweeping) -> Option<Error> {
        if !lock(&self.engine.conversions).is_awaited(keyspace.id, over.covers) {
            return None;
        }
        let damage = over.damage.last().cloned().or_else(|| keyspace.tables.damage());
        let damage = damage.or_else(|| over.left.clone());
        if damage.is_some() || self.engine.ballast.is_given_up() {
            return damage;
        }
        let left = left(keyspace, over);
        let choice = choice(&self.engine, keyspace, left.clone(), true);
        let lacks_room = !goes(keyspace, &left, &choice)
            && goes(keyspace, &left, &Choice { first: left.clone(), ..Choice::default() });
        lacks_room.then(|| no_room(&self.engine, keyspace, left.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::lsm;
    use crate::tiered::testing::Without;
    use crate::{Database, KeyspaceOptions};

    const IDLE: usize = 10_000;

    /// A database with so many keyspaces, every other of levels, each of which holds a run of one entry.
    fn with_idle() -> Database {
        let executor = Without(crate::executor::SeededExecutor::new(1), &["settle", "compact"]);
        let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let db = db.executor(Arc::new(executor)).open().unwrap();
        let mut batch = db.batch();
        for number in 0..IDLE {
            let options = KeyspaceOptions::default().store(Store::ALL[number % 2]);
            batch.insert(&db.keyspace(&format!("idle{number}"), options).unwrap(), "key", "value");
        }
        batch.commit().unwrap();
        db.flush().unwrap();
        db
    }

    /// After each change of tables the jobs looked at all that was not settled, five times over, which 10,000 keyspaces that nobody
    /// used were: puts took half as long again.
    #[test]
    fn nobody_looks_at_idle_keyspaces() {
        let db = with_idle();
        let engine = db.engine().clone();
        let asked = Cell::new(0);
        let count = || {
            let view = engine.view();
            let is_so = |_: &KeyspaceView| {
                asked.set(asked.get() + 1);
                true
            };
            let found = view.keyspaces.answering(Question::Settles, 1, is_so).len();
            (found, asked.take())
        };
        assert_eq!(count(), (IDLE, IDLE));
        assert_eq!(count(), (IDLE, 0));
        let busy = db.keyspace("busy", KeyspaceOptions::default()).unwrap();
        let (found, asked) = count();
        assert!(found == IDLE + 1 && asked <= 32, "{asked} of {found}");
        let due = || may_be_due(&engine, &engine.view()).into_iter().collect::<Vec<_>>();
        assert_eq!(due(), []);
        assert!(!is_busy(&engine, &engine.view()) && !lsm::is_busy(&engine, &engine.view()));
        assert!(engine.view().keyspaces.unsettled().count() >= IDLE);
        for run in 0..=merge::MAX_RUNS {
            assert_eq!(due(), []);
            busy.insert("key", run.to_string()).unwrap();
            busy.flush().unwrap();
        }
        assert_eq!(due(), [busy.id()]);
        assert!(is_busy(&engine, &engine.view()));
        // What reads have paid for, until it is begun or too dear.
        let idle = db.find("idle0").unwrap();
        let rent = engine.keyspace(idle.id()).unwrap().rent.clone();
        assert!(rent.pay(1 << 30));
        engine.note_paid(idle.id());
        assert_eq!(due(), [idle.id(), busy.id()]);
        assert!(!rent.covers(|_| Some(1 << 31)));
        assert_eq!(due(), [busy.id()]);
        // And what somebody asked for.
        lock(&engine.conversions).ask(idle.id());
        assert_eq!(due(), [idle.id(), busy.id()]);
        // A full disk is another matter.
        while engine.give_up_ballast(engine.room_seen()) {}
        assert_eq!(due().len(), IDLE / 2 + 1);
    }
}
