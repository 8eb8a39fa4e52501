//! The verifier of kill tests: reopens the store and looks for the state it must be in.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::{AckLog, Step, Stream};
use crate::engines::{Engine, OpenSettings, opener};
use crate::keys::KeySet;
use crate::run::Failures;
use crate::sizes::show_key;
use crate::values::Values;
use crate::{Error, Result};

/// What a verification found.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Operations acknowledged, by thread.
    pub acknowledged: Vec<u64>,
    /// Operations that what was found amounts to, by thread; meaningful without failures.
    pub found: Vec<u64>,
    /// Entries in the store.
    pub entries: u64,
    /// What is wrong.
    pub failures: Failures,
}

/// Reopens the store of `engine` with `open` and checks it against the acknowledgements at `acks`;
/// with `seal`, and if nothing is wrong, says so in that file, so that a writer may go on.
///
/// # Errors
/// If the store or the file cannot be read. Lost and invented operations are in the verdict.
pub fn verify(engine: &str, open: &OpenSettings, acks: &Path, seal: bool) -> Result<Verdict> {
    let log = AckLog::read(acks)?;
    let setup = &log.setup;
    let keys = setup.keys.make(setup.seed)?.set;
    if setup.threads > keys.len() {
        return Err(Error::usage(format!("{}: more threads than keys", acks.display())));
    }
    let values = Values::new(setup.value_size, setup.seed);
    let engine = opener(engine)?(&OpenSettings { durability: setup.durability, ..open.clone() })?;
    let verdict = judge(engine.as_ref(), &log, &keys, &values)?;
    engine.close()?;
    if seal && verdict.failures.count == 0 {
        let counts: Vec<String> = verdict.found.iter().map(u64::to_string).collect();
        cut_last_line(acks)?;
        let text = format!("sealed {}\n", counts.join(" "));
        OpenOptions::new()
            .append(true)
            .open(acks)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| Error::io("seal it", acks, &e))?;
    }
    Ok(verdict)
}

/// Cuts off a last line that the kill left without its end; nothing is needed in its place.
fn cut_last_line(path: &Path) -> Result<()> {
    let bytes = std::fs::read(path).map_err(|e| Error::io("read it", path, &e))?;
    let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
    if whole < bytes.len() {
        OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|file| file.set_len(whole as u64))
            .map_err(|e| Error::io("cut its last line", path, &e))?;
    }
    Ok(())
}

/// What a key may be found as, and for how many operations of its thread that is the truth.
#[derive(Debug, Clone, Copy)]
struct State {
    /// Version after so many operations on the key; 0: never written.
    version: u32,
    present: bool,
    /// True after at least this many of the thread's operations,
    from: u64,
    /// and at most this many.
    to: u64,
}

/// What every key may be found as, one thread's operations replayed.
struct Possible {
    /// By rank: the state at the acknowledged count.
    settled: Vec<State>,
    /// States that operations under way may have brought: rank and state, in order.
    later: Vec<(usize, State)>,
}

impl Possible {
    /// Everything that may be found by these acknowledgements.
    fn after(log: &AckLog, keys: usize) -> Possible {
        let setup = &log.setup;
        let nothing = State { version: 0, present: false, from: 0, to: u64::MAX };
        let mut possible = Possible { settled: vec![nothing; keys], later: Vec::new() };
        for (thread, &count) in log.acknowledged.iter().enumerate() {
            let mut stream = Stream::new(setup.seed, keys, thread, setup.threads);
            for (done, step) in (1..=count).zip(&mut stream) {
                possible.settled[step.index] = state_after(step, done);
            }
            // A sealed file has nothing under way.
            let window = if log.sealed { 0 } else { setup.batch };
            for (done, step) in (count + 1..=count + window).zip(&mut stream) {
                let rank = step.index;
                let earlier = possible.later.iter_mut().rev().find(|(other, _)| *other == rank);
                let before = match earlier {
                    Some((_, state)) => state,
                    None => &mut possible.settled[rank],
                };
                before.to = done - 1;
                possible.later.push((rank, state_after(step, done)));
            }
        }
        possible.later.sort_by_key(|(rank, _)| *rank);
        possible
    }

    /// Every state key `rank` may be in, oldest first.
    fn of(&self, rank: usize) -> impl Iterator<Item = State> {
        let first = self.later.partition_point(|(other, _)| *other < rank);
        let later = self.later[first..].iter().take_while(move |(other, _)| *other == rank);
        std::iter::once(self.settled[rank]).chain(later.map(|(_, state)| *state))
    }
}

fn state_after(step: Step, done: u64) -> State {
    State { version: step.version, present: !step.removes, from: done, to: u64::MAX }
}

fn judge(engine: &dyn Engine, log: &AckLog, keys: &KeySet, values: &Values) -> Result<Verdict> {
    let possible = Possible::after(log, keys.len());
    let mut failures = Failures::default();
    let mut scratch = Vec::new();
    // Per thread: the operation counts that everything seen so far agrees with.
    let mut agreed: Vec<(u64, u64)> =
        log.acknowledged.iter().map(|&count| (count, count + log.setup.batch)).collect();
    let entries = check_order(engine, keys, &mut failures)?;
    for rank in 0..keys.len() {
        let key = keys.key(rank);
        let key = key.as_ref();
        let mut found = None;
        engine.get(key, &mut |value| found = Some(value.to_vec()))?;
        let fits = possible.of(rank).find(|state| match &found {
            None => !state.present,
            Some(value) => {
                state.present
                    && values.check(key, state.version..=state.version, value, &mut scratch).is_ok()
            }
        });
        let Some(state) = fits else {
            failures.add(|| {
                let states: Vec<String> = possible.of(rank).map(describe).collect();
                let newest = possible.of(rank).last().map_or(0, |state| state.version);
                let found = match &found {
                    None => "nothing".to_string(),
                    Some(value) => values
                        .check(key, newest + 1..=newest + 1, value, &mut Vec::new())
                        .map_or_else(|mismatch| mismatch.found, |_| "a later version".to_string()),
                };
                format!("key {}: expected {}, found {found}", show_key(key), states.join(" or "))
            });
            continue;
        };
        let (low, high) = &mut agreed[rank % log.setup.threads];
        // Two removals in a row look alike; the earliest state that fits may end too soon, so the
        // last one that fits bounds from above.
        let last = possible
            .of(rank)
            .filter(|other| {
                other.present == state.present && (!state.present || other.version == state.version)
            })
            .last()
            .map_or(state.to, |other| other.to);
        if state.from > *high || last < *low {
            failures.add(|| {
                format!(
                    "key {}: as after operation {} to {last}, while other keys of its writer are \
                     as after {low} to {high}: an earlier write is lost though a later one is there",
                    show_key(key),
                    state.from
                )
            });
            continue;
        }
        *low = (*low).max(state.from);
        *high = (*high).min(last);
    }
    let found = agreed.into_iter().map(|(low, _)| low).collect();
    Ok(Verdict { acknowledged: log.acknowledged.clone(), found, entries, failures })
}

fn describe(state: State) -> String {
    match state.present {
        true => format!("version {}", state.version),
        false => "nothing".to_string(),
    }
}

/// Walks the whole store: keys strictly ascend, all are known, and gets and the walk see the same.
/// Returns how many entries there are.
fn check_order(engine: &dyn Engine, keys: &KeySet, failures: &mut Failures) -> Result<u64> {
    // The hash of every value that the walk sees, by rank.
    let mut seen = vec![None; keys.len()];
    let mut last: Option<Vec<u8>> = None;
    let mut entries = 0;
    engine.scan(b"", &mut |key, value| {
        entries += 1;
        if last.as_ref().is_some_and(|last| last.as_slice() >= key) {
            failures.add(|| format!("key {} comes out of order", show_key(key)));
        }
        match keys.rank(key) {
            Some(rank) => seen[rank] = Some(xxh3_64(value)),
            None => failures.add(|| format!("key {} was never written", show_key(key))),
        }
        last = Some(key.to_vec());
        true
    })?;
    for (rank, &scanned) in seen.iter().enumerate() {
        let key = keys.key(rank);
        let mut got = None;
        engine.get(key.as_ref(), &mut |value| got = Some(xxh3_64(value)))?;
        if got != scanned {
            let word = |found: Option<u64>| if found.is_some() { "a value" } else { "nothing" };
            failures.add(|| {
                format!(
                    "key {}: a scan finds {}, a get {} (or another one)",
                    show_key(key.as_ref()),
                    word(scanned),
                    word(got)
                )
            });
        }
    }
    Ok(entries)
}
