//! F3 (sustained) and F6: updates for as long as it takes that background work must keep up, and the space
//! that the store takes meanwhile. With `ten-minutes`: uniform and zipfian ones, for ten minutes each.

use std::time::{Duration, Instant};

use ::learnedkv::Compression;

use super::sheet::{Rounds, Target};
use super::store::{OVER_PROVISION_PERCENT, PARTITION_BYTES, Shape, Store, VALUE_BYTES};
use super::watch::Watch;
use super::{Run, remove};
use crate::Result;
use crate::keys::{Generator, KeySet, LoadOrder};
use crate::random::{Permutation, Rng, mix};
use crate::requests::{Chooser, Distribution};
use crate::run::resources::Usage;
use crate::sizes::show_count;
use crate::values::{ValueSize, Values};

/// What the store occupies at its highest, against what DESIGN section 8 allows.
const SPACE: Target = Target::AtMost { must: 1.0, aim: 0.9 };
const KEYS: u64 = 1_000_000;
const KEY_BYTES: u32 = 8;
const UPDATES: u64 = 4_000_000;
/// The loads, and the puts a second that each must reach.
const LOADS: [(&str, Distribution, Option<Target>); 3] = [
    ("uniform", Distribution::Uniform, Some(Target::AtLeast { must: 80e3, aim: 120e3 })),
    ("zipfian", Distribution::Zipfian, Some(Target::AtLeast { must: 150e3, aim: 250e3 })),
    ("hotspot", Distribution::Hotspot, None),
];
/// Of these so many for ten minutes.
const LONG_LOADS: usize = 2;
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// When a round ends.
#[derive(Debug, Clone, Copy)]
enum Until {
    Updates(u64),
    Elapsed(Duration),
}

/// The rounds of one kind of load.
#[derive(Default)]
struct Measured {
    puts: Rounds,
    slowest_second: Rounds,
    longest_ms: Rounds,
    said: Rounds,
    kernel_written: Rounds,
    space: Rounds,
    data_bytes: Rounds,
    committed_bytes: Rounds,
    log_bytes: Rounds,
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let updates = run.scale.of(UPDATES);
    let plan = Plan {
        title: "F3: sustained updates, and F6: space meanwhile",
        words: format!("{} updates", show_count(updates)),
        until: Until::Updates(updates),
        rounds: run.rounds,
        loads: LOADS.len(),
    };
    plan.carry_out(run)
}

pub(super) fn ten_minutes(run: &mut Run) -> Result<()> {
    let duration = Duration::from_millis(run.scale.of(TEN_MINUTES.as_millis() as u64));
    let plan = Plan {
        title: "Ten minutes of updates",
        words: format!("updates for {:.0} s", duration.as_secs_f64()),
        until: Until::Elapsed(duration),
        rounds: 1,
        loads: LONG_LOADS,
    };
    plan.carry_out(run)
}

/// What is done, and what stands above its table.
struct Plan<'a> {
    title: &'a str,
    words: String,
    until: Until,
    rounds: u32,
    /// How many of [`LOADS`].
    loads: usize,
}

impl Plan<'_> {
    fn carry_out(&self, run: &mut Run) -> Result<()> {
        let count = run.scale.of(KEYS);
        let keys = Generator::Uniform.generate(count as usize, run.seed);
        let shape = run.usual.or(Shape::default())?;
        let values = shape.values(&Values::new(ValueSize::Fixed(VALUE_BYTES), run.seed));
        let (mut first, mut updates) = (Measured::default(), <[Measured; LOADS.len()]>::default());
        for round in 0..self.rounds {
            let store = Store::open(&run.dir, run.scale, shape)?;
            let versions = vec![0; keys.len()];
            let mut load = Load { store: &store, keys: &keys, values: &values, versions, run };
            let order = Permutation::new(count, mix(run.seed ^ u64::from(round)));
            load.put_all((0..count).map(|at| order.at(at) as usize), &mut first)?;
            let sorted = LoadOrder::Sorted;
            for ((_, kind, _), measured) in LOADS.iter().zip(&mut updates).take(self.loads) {
                let chooser = Chooser::new(*kind, count, &sorted);
                let mut rng = Rng::seeded(mix(run.seed ^ u64::from(round) << 8));
                let mut next = || chooser.next(&mut rng);
                match self.until {
                    Until::Updates(n) => load.put_all((0..n).map(|_| next()), measured)?,
                    Until::Elapsed(duration) => {
                        let clock = Instant::now();
                        let goes_on = || (clock.elapsed() < duration).then(&mut next);
                        load.put_all(std::iter::from_fn(goes_on), measured)?;
                    }
                }
            }
            let versions = std::mem::take(&mut load.versions);
            store.check_all(&keys, &values, &versions)?;
            store.close()?;
            remove(&run.dir)?;
        }
        self.show(run, &first, &updates);
        Ok(())
    }

    fn show(&self, run: &mut Run, first: &Measured, updates: &[Measured]) {
        let Plan { title, words, rounds, .. } = self;
        let count = show_count(run.scale.of(KEYS));
        let loads = LOADS.iter().take(self.loads).map(|(name, kind, _)| match kind {
            Distribution::Hotspot => "hotspot (four of five to a fifth of the keys)",
            _ => name,
        });
        let loads = loads.collect::<Vec<_>>().join(", ");
        run.sheet.head(title);
        run.sheet.line(&format!(
            "{count} keys, {VALUE_BYTES} B, buffered, one client, sweeps as they come by themselves: put once in \
             random order into an empty store (so the first conversion is in it), then {words}, {loads}; \
             the clock stops when the last flush is committed. \
             k puts/s as median (lowest-highest) of {rounds} rounds; must 80 uniform and 150 zipfian, aim 120 and 250. \
             Space is what tables, filters and values occupied at their highest (looked at every 20 ms), over what \
             the design allows: the bytes of keys and newest values (of a compressed store what of it is live at rest, as it says) times 1 + 2 x {OVER_PROVISION_PERCENT} %, and two \
             partitions, judged by the worst round; the log beside it. Committed is what of it `stats()` said then: the rest was being written, or \
             waited to be removed. Beside the speed stands what `stats()` calls sustainable at the end of the \
             load, of late. Every value is checked at the end.",
        ));
        let names = [
            "load",
            "k puts/s",
            "stands",
            "slowest second, k puts",
            "longest put, ms",
            "as stats() says, k puts/s",
            "written per byte put",
            "space, MB",
            "committed then, MB",
            "over the allowed",
            "stands",
            "log, MB",
        ];
        let row = |name: &str, m: &Measured, target: Option<Target>| {
            vec![
                name.to_string(),
                m.puts.show(1e3, 0),
                target.map_or(String::new(), |target| target.judge_rounds(&m.puts, 1.0)),
                m.slowest_second.show(1e3, 0),
                m.longest_ms.show(1.0, 0),
                m.said.show(1e3, 0),
                m.kernel_written.show(1.0, 2),
                m.data_bytes.show(1e6, 0),
                m.committed_bytes.show(1e6, 0),
                m.space.show(1.0, 2),
                SPACE.judge_worst(&m.space, 1.0),
                m.log_bytes.show(1e6, 0),
            ]
        };
        let loads = LOADS.into_iter().zip(updates).take(self.loads);
        let updated = loads.map(|((name, _, target), measured)| row(name, measured, target));
        let rows: Vec<_> = std::iter::once(row("first puts", first, None)).chain(updated).collect();
        run.sheet.table(&names, &rows);
    }
}

/// A store that is put to.
struct Load<'a> {
    store: &'a Store,
    keys: &'a KeySet,
    values: &'a Values,
    versions: Vec<u32>,
    run: &'a Run,
}

impl Load<'_> {
    fn put_all(
        &mut self,
        ranks: impl Iterator<Item = usize>,
        measured: &mut Measured,
    ) -> Result<()> {
        let keyspace = self.store.keyspace.clone();
        let committed = move || keyspace.stats().map_or(0, |stats| stats.space_bytes);
        let watch = Watch::beside(&self.run.dir, committed);
        let (before, used) = (self.store.stats(), Usage::now());
        let clock = Instant::now();
        let (mut value, mut count, mut longest) = (Vec::new(), 0u64, Duration::ZERO);
        let (mut second, mut in_second, mut slowest) = (clock, 0u64, f64::INFINITY);
        for rank in ranks {
            self.versions[rank] += 1;
            let key = self.keys.key(rank);
            self.values.fill(key.as_ref(), self.versions[rank], &mut value);
            let begun = Instant::now();
            self.store.insert(key.as_ref(), &value)?;
            longest = longest.max(begun.elapsed());
            (count, in_second) = (count + 1, in_second + 1);
            let elapsed = second.elapsed();
            if in_second % 64 == 0 && elapsed >= Duration::from_secs(1) {
                slowest = slowest.min(in_second as f64 / elapsed.as_secs_f64());
                (second, in_second) = (Instant::now(), 0);
            }
        }
        self.store.flush()?;
        let seconds = clock.elapsed().as_secs_f64();
        let (after, used) = (self.store.stats(), Usage::now().since(used));
        // Until it is at rest the space counts too.
        self.store.settle()?;
        let (most, most_log) = (watch.most_data_bytes() as f64, watch.most_log_bytes() as f64);
        let committed = watch.committed_bytes() as f64;
        drop(watch);
        // Every key has one value that is live; what the store is at rest may be more. Of a compressed one the store says what that takes.
        let live = match self.run.usual.or(Shape::default())?.compression {
            Compression::None => self.keys.len() as u64 * u64::from(KEY_BYTES + VALUE_BYTES),
            _ => self.store.keyspace_stats()?.live_bytes,
        } as f64;
        let over_provision = OVER_PROVISION_PERCENT as f64 / 100.0;
        let partitions = 2.0 * self.run.scale.of(PARTITION_BYTES) as f64;
        let allowed = live * (1.0 + 2.0 * over_provision) + partitions;
        measured.puts.push(count as f64 / seconds);
        measured.slowest_second.push(if slowest.is_finite() { slowest } else { 0.0 });
        measured.longest_ms.push(longest.as_secs_f64() * 1e3);
        let said = after.sustainable_bytes_per_s as f64 / f64::from(KEY_BYTES + VALUE_BYTES);
        measured.said.push(said);
        let put_bytes = (after.put_bytes - before.put_bytes) as f64;
        measured.kernel_written.push(used.written_bytes as f64 / put_bytes);
        measured.data_bytes.push(most);
        measured.committed_bytes.push(committed);
        measured.space.push(most / allowed);
        measured.log_bytes.push(most_log);
        Ok(())
    }
}
