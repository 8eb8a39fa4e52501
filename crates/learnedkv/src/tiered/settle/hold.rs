//! Which settling job works where.
//!
//! A job that works at a keyspace holds it: so a keyspace has one sweep, and the steps of it take effect one after
//! the other, each where the watermark stands. That step *leads*.
//!
//! **One looks at a time.** Who looks for work holds a keyspace for that moment too, and two that look at once would hide from each
//! other what there is to do: each might find nothing, and nobody would be awake who looks again. So a job that comes while another looks
//! waits, and is known to have come ([`Shared::begin_look`]): whoever finds nothing then looks once more in its stead, and whoever finds
//! something, then or before, wakes it; so does one that has become none to look for it, on a full disk. Between jobs that look in vain nothing goes to and fro: the one that came sleeps until it is woken.
//!
//! **A step ahead.** Where writers pay for space, the next step is begun while one leads: where that ends, once it is
//! half way. It holds nothing, and copies all that it will write; what ends its table, and its edit, wait until the watermark stands where
//! it begins. Then it is handed the hold, and leads, and the next one may be begun. So what is written and in no edit yet is two partitions (up to an eighth more where one is stretched),
//! however much faster one goes than the other; and as both seldom begin at once, one computes while the other waits for the disk. A step that is begun at the watermark goes no further than where one ahead begins:
//! there is one between where the last ended sooner than was planned, and of more than two the step ahead is given up. No step is begun ahead where a merge is due
//! (it could not have the hold), where something failed, or where there was no room for one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use crate::error::Error;
use crate::format::entry::{KeyspaceId, SequenceNumber};
use crate::sstable::table_id;
use crate::tiered::plan::Course;
use crate::tiered::trim::Tried;
use crate::value_log::Segments;
use crate::view::Tables;

/// What the jobs know together.
#[derive(Default)]
pub struct Shared {
    /// The keyspaces that a job works at.
    held: BTreeSet<KeyspaceId>,
    /// Whether one looks for work now, and whether another came meanwhile.
    looks: Option<bool>,
    /// The steps ahead.
    ahead: BTreeMap<KeyspaceId, Ahead>,
    /// The keyspace worked at last: the next one's turn it is.
    pub last: KeyspaceId,
    /// The sweeps decided on.
    pub sweeps: BTreeMap<KeyspaceId, Sweeping>,
    /// Those where it failed, and when; see `Health::asked`. They are tried again when somebody has
    /// asked since, and come last: the damage of one keeps no other from being settled.
    pub failed: BTreeMap<KeyspaceId, u64>,
    /// Those where the disk refused a merge that read so many bytes, and none that reads as many was done since, nor a sweep.
    refused: BTreeMap<KeyspaceId, u64>,
}

/// A sweep, from when it is decided to its end.
#[derive(Default)]
pub struct Sweeping {
    /// The requests that it covers.
    pub covers: u64,
    /// What was rotated: to be flushed first.
    pub up_to: SequenceNumber,
    /// It is due for what reads paid alone, and nobody had asked for one when it was decided.
    pub is_for_reads: bool,
    /// Somebody waits for it who wants whole partitions: it leaves no deltas.
    pub is_whole: bool,
    /// What it keeps in mind.
    pub course: Option<Course>,
    /// What it could not read.
    pub damage: Vec<Error>,
    /// Why else it left a partition as it is that was to be whole, or rid of its delta.
    pub left: Option<Error>,
    /// It follows another, for these value segments or the deadest of them.
    pub to_empty: Option<BTreeSet<u64>>,
    /// All that it was to empty, and those before it that it follows.
    pub chosen: BTreeSet<u64>,
    /// What its steps wrote, and what merges beside it read.
    pub swept_bytes: u64,
    pub merged_bytes: u64,
    /// Where the step that leads ends, if it is half way and not the last; until a step was begun behind it, or
    /// there was none to begin.
    half_way_to: Option<Option<Vec<u8>>>,
    /// There was no room for a step ahead.
    is_alone: bool,
    /// On a full disk: the latest request for which what was in memory was flushed before a step.
    pub flushed_for: u64,
    /// Its course is that of a full disk.
    pub is_on_full_disk: bool,
    /// What lives in the value segments that it empties there, bytes: so much of the room is spoken for.
    pub claimed_bytes: u64,
    /// The tables that were trimmed, or not worth it, as they were.
    pub tried: BTreeSet<Tried>,
    /// Those for which there was no room, and when; see `Health::asked`: there may be some once somebody has asked since.
    pub found_no_room: (u64, BTreeSet<Tried>),
}

/// A step ahead.
struct Ahead {
    /// Where it begins.
    lower: Vec<u8>,
    /// The watermark stands there: it has the hold.
    leads: bool,
    /// Where the watermark stood last, and how often it has come to stand elsewhere, short of there.
    seen: Vec<u8>,
    waited: u32,
}

/// A step ahead waits for so many steps that end before it begins: more come where the partition before it is cut into many.
const MOST_WAITED: u32 = 2;

impl Sweeping {
    /// One that was decided on.
    pub fn decided(covers: u64, up_to: SequenceNumber) -> Sweeping {
        Sweeping { covers, up_to, ..Sweeping::default() }
    }

    /// The same, due for what reads paid alone, or not.
    pub fn for_reads(self, is_for_reads: bool) -> Sweeping {
        Sweeping { is_for_reads, ..self }
    }

    /// The same, for who wants whole partitions, or not.
    pub fn whole(self, is_whole: bool) -> Sweeping {
        Sweeping { is_whole, ..self }
    }

    /// One that follows `over`, which goes on for who waits for that, for these value segments if they are known.
    pub fn following(over: &Sweeping, to_empty: Option<BTreeSet<u64>>) -> Sweeping {
        let (damage, chosen) = (over.damage.clone(), over.chosen.clone());
        let following = Sweeping::decided(over.covers, 0).whole(over.is_whole);
        let left = over.left.clone();
        Sweeping { damage, left, chosen, to_empty, ..following }
    }

    /// Notes what a step could not read: once for each file.
    pub fn note_damage(&mut self, damage: Error) {
        if self.damage.iter().all(|known| known.path() != damage.path()) {
            self.damage.push(damage);
        }
    }

    /// Once it is over: forgets the damage of a table that is gone. All its keys were removed.
    pub fn forget_what_is_gone(&mut self, tables: &Tables) {
        let is_table = |path: &Path| {
            path.file_name().and_then(OsStr::to_str).is_some_and(|name| table_id(name).is_some())
        };
        let is_gone =
            |path: &Path| is_table(path) && tables.all().all(|table| table.path() != path);
        self.damage.retain(|damage| !damage.path().is_some_and(is_gone));
    }

    /// Once it is over: whether what it and those it followed met is to be told.
    pub fn is_told(&self) -> bool {
        self.course.is_some() || !self.damage.is_empty() || !self.chosen.is_empty()
    }

    /// Once it is over: the value segments that were to be emptied and are still there.
    pub fn kept(&self, segments: &Segments) -> BTreeSet<u64> {
        self.chosen.iter().filter(|id| segments.get(**id).is_some()).copied().collect()
    }
}

impl Shared {
    /// Begins to look for work. False: another does; it will know that somebody came.
    pub fn begin_look(&mut self) -> bool {
        let is_first = self.looks.is_none();
        self.looks = Some(!is_first);
        is_first
    }

    /// Whether somebody came during the look that is over.
    pub fn end_look(&mut self) -> bool {
        self.looks.take().unwrap_or_default()
    }

    /// Takes hold of a keyspace. False: another job has it.
    pub fn hold(&mut self, keyspace: KeyspaceId) -> bool {
        self.held.insert(keyspace)
    }

    /// Whether a job works at a keyspace.
    pub fn is_held(&self, keyspace: KeyspaceId) -> bool {
        self.held.contains(&keyspace)
    }

    /// A merge of so many bytes was done, or the disk refused it.
    pub fn note_merge(&mut self, keyspace: KeyspaceId, input_bytes: u64, is_refused: bool) {
        if is_refused {
            let most = self.refused.entry(keyspace).or_default();
            *most = input_bytes.max(*most);
        } else {
            // A smaller one says nothing of it.
            self.refused.retain(|id, bytes| *id != keyspace || *bytes > input_bytes);
        }
    }

    /// The sweep of a keyspace is over: the runs that the disk refused to merge are gone with it.
    pub fn end_sweep(&mut self, keyspace: KeyspaceId) -> Sweeping {
        self.refused.remove(&keyspace);
        self.sweeps.remove(&keyspace).unwrap_or_default()
    }

    /// Whether the disk refused a merge of a keyspace, as far as it matters still.
    pub fn refuses_merges(&self, keyspace: KeyspaceId) -> bool {
        self.refused.contains_key(&keyspace)
    }

    /// What sweeps of other keyspaces have yet to write of value segments that they empty on a full disk, bytes at most.
    pub fn claimed_by_others(&self, keyspace: KeyspaceId) -> u64 {
        let others = self.sweeps.iter().filter(|(id, _)| **id != keyspace);
        others.map(|(_, sweeping)| sweeping.claimed_bytes).sum()
    }

    /// Whether no job works at any.
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.ahead.is_empty()
    }

    /// Lets go of a keyspace, whose watermark stands there. True: the step ahead has the hold now.
    pub fn let_go(&mut self, keyspace: KeyspaceId, watermark: Option<&[u8]>) -> bool {
        if let Some(sweeping) = self.sweeps.get_mut(&keyspace) {
            sweeping.half_way_to = None;
        }
        if let Some((ahead, watermark)) = self.ahead.get_mut(&keyspace).zip(watermark) {
            if ahead.lower == watermark {
                ahead.leads = true;
                return true;
            }
            if ahead.seen != watermark {
                ahead.seen = watermark.to_vec();
                ahead.waited += 1;
            }
        }
        self.held.remove(&keyspace);
        false
    }

    /// The step that leads is half way to `end`. True: that was not known.
    pub fn note_half_way(&mut self, keyspace: KeyspaceId, end: &[u8]) -> bool {
        let sweeping = self.sweeps.get_mut(&keyspace);
        let lacks = sweeping.filter(|sweeping| sweeping.half_way_to.is_none());
        lacks.map(|sweeping| sweeping.half_way_to = Some(Some(end.to_vec()))).is_some()
    }

    /// The keyspaces where a step may be begun ahead.
    pub fn may_go_ahead(&self) -> Vec<KeyspaceId> {
        let lacks = |id: &KeyspaceId| !self.ahead.contains_key(id) && !self.failed.contains_key(id);
        let may = |s: &Sweeping| s.half_way_to.as_ref().is_some_and(Option::is_some) && !s.is_alone;
        self.sweeps.iter().filter(|(id, s)| lacks(id) && may(s)).map(|(id, _)| *id).collect()
    }

    /// Says that a step will be begun ahead: where the one that leads ends, or behind that. `None`: it may not any more.
    pub fn go_ahead(&mut self, keyspace: KeyspaceId) -> Option<Vec<u8>> {
        if !self.may_go_ahead().contains(&keyspace) {
            return None;
        }
        let lower = self.sweeps.get_mut(&keyspace)?.half_way_to.as_mut()?.take()?;
        self.ahead.insert(
            keyspace,
            Ahead { lower: lower.clone(), leads: false, seen: Vec::new(), waited: 0 },
        );
        Some(lower)
    }

    /// The step begins at `lower`, behind where it was said it would. False: the watermark stands there already, and is to be
    /// moved first.
    pub fn go_further(&mut self, keyspace: KeyspaceId, lower: &[u8]) -> bool {
        let Some(ahead) = self.ahead.get_mut(&keyspace) else { return false };
        let stays = ahead.lower == lower;
        if !stays && !ahead.leads {
            ahead.lower = lower.to_vec();
        }
        stays || !ahead.leads
    }

    /// Where the step ahead of a keyspace begins.
    pub fn ahead(&self, keyspace: KeyspaceId) -> Option<&[u8]> {
        self.ahead.get(&keyspace).map(|ahead| ahead.lower.as_slice())
    }

    /// Whether the step ahead was handed the hold: then it leads, and is ahead no more.
    pub fn takes_lead(&mut self, keyspace: KeyspaceId) -> bool {
        let leads = self.ahead.get(&keyspace).is_some_and(|ahead| ahead.leads);
        if leads {
            self.ahead.remove(&keyspace);
        }
        leads
    }

    /// The step ahead is given up, with the hold if it has that.
    pub fn give_up_ahead(&mut self, keyspace: KeyspaceId) {
        if self.ahead.remove(&keyspace).is_some_and(|ahead| ahead.leads) {
            self.held.remove(&keyspace);
        }
    }

    /// The step ahead is to go, for the room it takes. False: there is none.
    pub fn stop_ahead(&mut self, keyspace: KeyspaceId) -> bool {
        self.go_alone(keyspace);
        self.ahead.contains_key(&keyspace)
    }

    /// Whether the step ahead is to stay: nothing failed, nobody needs its room, and it does not wait for long.
    pub fn may_stay_ahead(&self, keyspace: KeyspaceId) -> bool {
        let is_alone = self.sweeps.get(&keyspace).is_some_and(|sweeping| sweeping.is_alone);
        let ahead = self.ahead.get(&keyspace);
        !is_alone
            && !self.failed.contains_key(&keyspace)
            && ahead.is_some_and(|ahead| ahead.leads || ahead.waited <= MOST_WAITED)
    }

    /// No step is begun ahead in this sweep any more.
    pub fn go_alone(&mut self, keyspace: KeyspaceId) {
        if let Some(sweeping) = self.sweeps.get_mut(&keyspace) {
            sweeping.is_alone = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::engine::lock;
    use crate::executor::{Job, Step};
    use crate::tiered::settle::SettleJob;
    use crate::tiered::testing::Without;
    use crate::{Database, KeyspaceOptions};

    /// The damage of a table that was gone by the end had taken the place of what was met before.
    #[test]
    fn what_is_gone_takes_no_other_damage_with_it() {
        let damage = |path: &str| Error::corruption("damaged").at_path(Path::new(path));
        let mut sweeping = Sweeping::default();
        for path in ["/db/values-00000003", "/db/table-00000002", "/db/values-00000003"] {
            sweeping.note_damage(damage(path));
        }
        assert_eq!(sweeping.damage.len(), 2);
        let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1))).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let view = db.engine().keyspace(keyspace.id()).unwrap();
        sweeping.forget_what_is_gone(&view.tables);
        let left: Vec<_> = sweeping.damage.iter().map(|damage| damage.path().unwrap()).collect();
        assert!(left == [Path::new("/db/values-00000003")] && sweeping.is_told(), "{left:?}");
    }

    fn sweeping() -> Shared {
        let mut shared = Shared::default();
        shared.sweeps.insert(7, Sweeping::default());
        assert!(shared.hold(7) && !shared.hold(7));
        assert_eq!(shared.go_ahead(7), None, "the one that leads was just begun");
        assert!(shared.note_half_way(7, b"m") && !shared.note_half_way(7, b"m"));
        shared
    }

    #[test]
    fn a_step_ahead_is_handed_the_hold_where_it_begins() {
        let mut shared = sweeping();
        assert_eq!(shared.go_ahead(7), Some(b"m".to_vec()));
        assert_eq!(shared.go_ahead(7), None, "one is enough");
        assert!(shared.go_further(7, b"p") && shared.ahead(7) == Some(b"p"));
        assert!(!shared.let_go(7, Some(b"k")), "it ended sooner: somebody leads from there");
        assert!(!shared.takes_lead(7) && !shared.is_idle() && shared.may_stay_ahead(7));
        assert!(shared.hold(7) && shared.let_go(7, Some(b"p")) && shared.is_held(7));
        assert!(shared.takes_lead(7) && shared.ahead(7).is_none() && shared.is_held(7));
        assert!(!shared.let_go(7, Some(b"z")) && shared.is_idle());
    }

    #[test]
    fn one_that_would_begin_behind_a_watermark_it_was_handed_is_given_up() {
        let mut shared = sweeping();
        assert!(shared.go_ahead(7).is_some() && shared.let_go(7, Some(b"m")));
        assert!(shared.go_further(7, b"m"), "it leads");
        assert!(!shared.go_further(7, b"n"), "from m to n nobody would move the watermark");
        shared.give_up_ahead(7);
        assert!(shared.is_idle());
    }

    /// Whoever began none was woken by that, and tried again, until the one that leads was over.
    #[test]
    fn where_none_is_to_be_begun_nobody_tries_again() {
        let mut shared = sweeping();
        assert!(shared.go_ahead(7).is_some());
        shared.give_up_ahead(7);
        assert!(!shared.note_half_way(7, b"m") && shared.may_go_ahead().is_empty());
        shared.let_go(7, Some(b"m"));
        assert!(shared.hold(7) && shared.note_half_way(7, b"n") && shared.may_go_ahead() == [7]);
    }

    /// Where a partition was cut into many, the job behind it waited for all of them, and did nothing else.
    #[test]
    fn a_step_ahead_waits_for_few() {
        let mut shared = sweeping();
        assert!(shared.go_ahead(7).is_some());
        let mut ended = |at: &[u8]| {
            assert!(!shared.let_go(7, Some(at)) && shared.hold(7));
            shared.may_stay_ahead(7)
        };
        assert!(ended(b"a") && ended(b"a") && ended(b"a"), "nothing was done");
        assert!(ended(b"b") && !ended(b"c"));
        assert!(shared.let_go(7, Some(b"m")) && shared.may_stay_ahead(7), "it leads");
        assert!(shared.stop_ahead(7) && !shared.may_stay_ahead(7), "its room is needed");
    }

    /// That a small one was refused was all that was known, once one was; and a sweep that took them all changed nothing.
    #[test]
    fn the_largest_merge_that_was_refused_counts_until_one_as_large_is_done_or_a_sweep() {
        let mut shared = Shared::default();
        for refused in [100, 30] {
            shared.note_merge(7, refused, true);
        }
        shared.note_merge(7, 99, false);
        shared.note_merge(8, 500, false);
        assert!(shared.refuses_merges(7) && !shared.refuses_merges(8));
        shared.note_merge(7, 100, false);
        assert!(!shared.refuses_merges(7));
        shared.note_merge(7, 100, true);
        shared.end_sweep(8);
        assert!(shared.refuses_merges(7));
        shared.end_sweep(7);
        assert!(!shared.refuses_merges(7));
    }

    #[test]
    fn none_goes_ahead_where_something_failed_or_there_was_no_room() {
        let mut shared = sweeping();
        shared.failed.insert(7, 0);
        assert_eq!(shared.go_ahead(7), None);
        shared.failed.clear();
        assert_eq!(shared.may_go_ahead(), [7]);
        assert!(!shared.stop_ahead(7));
        assert_eq!((shared.go_ahead(7), shared.may_go_ahead()), (None, vec![]));
        shared.give_up_ahead(7);
        assert!(shared.is_held(7), "there was none to be given up");
    }

    #[test]
    fn one_looks_at_a_time_and_knows_who_came() {
        let mut shared = Shared::default();
        assert!(shared.begin_look() && !shared.end_look());
        assert!(shared.begin_look() && !shared.begin_look() && !shared.begin_look());
        assert!(shared.end_look());
        assert!(shared.begin_look() && !shared.end_look(), "that is over");
    }

    /// Counts its steps: one, and one more each time that it is woken.
    struct Steps(Arc<AtomicU64>);

    impl Job for Steps {
        fn name(&self) -> &'static str {
            "steps"
        }

        fn step(&mut self) -> Step {
            self.0.fetch_add(1, Ordering::Relaxed);
            Step::Wait
        }
    }

    /// Each found nothing while the other looked at something else there, both went to sleep, and `convert` waited for ever.
    #[test]
    fn whoever_comes_during_a_look_is_stood_in_for_or_woken() {
        let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let db = db.executor(Arc::new(Without::settling())).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        keyspace.insert("key", "value").unwrap();
        keyspace.flush().unwrap();
        let shared = Arc::default();
        let [mut one, mut other] =
            [true, false].map(|first| SettleJob::new(db.engine(), Arc::clone(&shared), first));
        assert_eq!([one.step(), other.step()], [Step::Wait; 2], "nothing is due");
        let (executor, steps) = (&db.engine().executor, Arc::new(AtomicU64::new(0)));
        executor.spawn(Box::new(Steps(steps.clone())));
        executor.wait_until(&mut || steps.load(Ordering::Relaxed) == 1);
        // There is work now, for which the one had looked before.
        lock(&db.engine().conversions).ask(keyspace.id());
        let mut look = |comes: bool, found| {
            one.look(|_| {
                assert!(!comes || other.step() == Step::Wait);
                Ok(found)
            })
            .unwrap()
        };
        let wakes = |steps_by_then| {
            executor.wait_until(&mut || steps.load(Ordering::Relaxed) == steps_by_then);
        };
        assert!(look(true, true));
        wakes(2);
        assert!(look(true, false), "it looks again");
        assert!(look(false, true), "for the other, which might do more");
        wakes(3);
        assert!(look(true, false) && !look(false, false), "there is nothing for either");
        assert_ne!([one.step(), other.step()], [Step::Wait; 2], "nobody looks any more");
    }
}
