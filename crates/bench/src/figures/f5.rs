//! F5: gets and puts while a sweep runs, against the same while none does: open loop, so that a stall
//! counts for all that arrive during it.
//!
//! And once more without a sweep, beside a thread that has nothing to do with the store and computes for as long as the sweeps
//! did, in pieces as long as their steps: what a machine of few processors makes of such work, whoever does it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::kernel::{Account, Losses, Lost, Turns};
use super::sheet::{Rounds, Target};
use super::store::{Shape, Store, VALUE_BYTES};
use super::{Run, remove};
use crate::keys::{Generator, KeySet};
use crate::random::Rng;
use crate::run::arrivals::{Arrivals, Waiting};
use crate::run::resources::Usage;
use crate::sizes::show_count;
use crate::values::{ValueSize, Values};
use crate::{Error, Result};

/// The 99.9th percentile during a sweep, over that outside.
const TIMES: Target = Target::AtMost { must: 2.0, aim: 1.3 };
/// The longest wait, ms.
const LONGEST: Target = Target::AtMost { must: 100.0, aim: 20.0 };
const KEYS: u64 = 1_000_000;
/// Of the rate that a closed loop reaches.
const SHARE: f64 = 0.5;
/// How long the closed loop runs, and each open one, at full scale.
const CLOSED: Duration = Duration::from_secs(10);
const OPEN: Duration = Duration::from_secs(30);

/// The stranger computes so long, about as a step of a sweep, and then rests for its share.
const PIECE: Duration = Duration::from_millis(2);
/// What it touches.
const STRANGER_BYTES: usize = 8 << 20;

/// How long operations took from when they were due, ns.
#[derive(Default)]
struct Latencies {
    gets: Vec<u64>,
    puts: Vec<u64>,
    /// Where the client's time went meanwhile that others had.
    lost: Option<Lost>,
}

fn percentile(latencies: &mut [u64], share: f64) -> f64 {
    latencies.sort_unstable();
    let at = (latencies.len() as f64 * share) as usize;
    latencies.get(at.min(latencies.len().saturating_sub(1))).map_or(f64::NAN, |ns| *ns as f64)
}

/// The rounds of one operation: without a sweep, with one, and beside a stranger, us.
#[derive(Default)]
struct Measured {
    p999: [Rounds; 3],
    longest: [Rounds; 3],
    /// With a sweep, of that without; beside a stranger, of that without; and with a sweep, of that beside a stranger.
    times: [Rounds; 3],
}

struct Client<'a> {
    store: &'a Store,
    keys: &'a KeySet,
    values: &'a Values,
    versions: Vec<u32>,
    rng: Rng,
    value: Vec<u8>,
    scratch: Vec<u8>,
}

impl Client<'_> {
    /// A get of a uniform key.
    fn get(&mut self) -> Result<()> {
        let rank = self.rng.below(self.keys.len() as u64) as usize;
        let (key, version) = (self.keys.key(rank), self.versions[rank]);
        self.store.check(key.as_ref(), self.values, version, &mut self.scratch)
    }

    /// One operation, a get or a put as a coin falls, of a uniform key; true: a get.
    fn operate(&mut self) -> Result<bool> {
        let rank = self.rng.below(self.keys.len() as u64) as usize;
        let key = self.keys.key(rank);
        if self.rng.next_u64() & 1 == 0 {
            let version = self.versions[rank];
            self.store.check(key.as_ref(), self.values, version, &mut self.scratch)?;
            return Ok(true);
        }
        self.versions[rank] += 1;
        self.values.fill(key.as_ref(), self.versions[rank], &mut self.value);
        self.store.insert(key.as_ref(), &self.value)?;
        Ok(false)
    }

    /// Operations a second in a closed loop.
    fn closed(&mut self, duration: Duration) -> Result<f64> {
        let (clock, mut count) = (Instant::now(), 0u64);
        while clock.elapsed() < duration {
            self.operate()?;
            count += 1;
        }
        Ok(count as f64 / clock.elapsed().as_secs_f64())
    }

    /// Poisson arrivals at `rate` a second until `stop` says so.
    fn open(&mut self, rate: f64, stop: &dyn Fn(Duration) -> bool) -> Result<Latencies> {
        let mut latencies = Latencies::default();
        let (mut arrivals, account) = (Arrivals::begin(rate), Account::begin());
        while !stop(arrivals.next(&mut self.rng)) {
            let due = arrivals.wait(Waiting::Spinning);
            let is_get = self.operate()?;
            let took = due.elapsed().as_nanos() as u64;
            if is_get { latencies.gets.push(took) } else { latencies.puts.push(took) }
        }
        latencies.lost = account.lost();
        Ok(latencies)
    }
}

/// What the machine takes from a client that gets only, by the same arrivals, of a store that does nothing else: us.
#[derive(Default)]
struct Machine {
    p999: Rounds,
    longest: Rounds,
    lost: Losses,
}

impl Machine {
    fn measure(&mut self, client: &mut Client<'_>, rate: f64, duration: Duration) -> Result<()> {
        let (mut late, mut arrivals) = (Vec::new(), Arrivals::begin(rate));
        let account = Account::begin();
        while arrivals.next(&mut client.rng) < duration {
            let due = arrivals.wait(Waiting::Spinning);
            client.get()?;
            late.push(due.elapsed().as_nanos() as u64);
        }
        self.lost.push(account.lost());
        self.p999.push(percentile(&mut late, 0.999));
        self.longest.push(percentile(&mut late, 1.0));
        Ok(())
    }
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let count = run.scale.of(KEYS);
    let keys = Generator::Uniform.generate(count as usize, run.seed);
    let values = Values::new(ValueSize::Fixed(VALUE_BYTES), run.seed);
    let shape = Shape { automatic_conversion: false, ..run.usual.or(Shape::default())? };
    let values = shape.values(&values);
    let store = Store::open(&run.dir, run.scale, shape)?;
    store.ingest(&keys, &values)?;
    let mut client = Client {
        store: &store,
        keys: &keys,
        values: &values,
        versions: vec![1; keys.len()],
        rng: Rng::seeded(run.seed),
        value: Vec::new(),
        scratch: Vec::new(),
    };
    let millis = |full: Duration| Duration::from_millis(run.scale.of(full.as_millis() as u64));
    let (closed, open) = (millis(CLOSED), millis(OPEN));
    let (mut gets, mut puts) = (Measured::default(), Measured::default());
    let (mut machine, mut lost) = (Machine::default(), <[Losses; 3]>::default());
    let (mut rates, mut cpu, mut sweeping) =
        (Rounds::default(), <[Rounds; 3]>::default(), Rounds::default());
    for _ in 0..run.rounds {
        store.settle()?;
        let reached = client.closed(closed)?;
        rates.push(reached);
        let rate = run.rate.unwrap_or(reached * SHARE);
        if rate > reached {
            // What arrives would queue for ever.
            return Err(Error::usage(format!(
                "--rate: expected less than what a closed loop reaches here, {reached:.0} a second, found {rate}"
            )));
        }
        store.settle()?;
        machine.measure(&mut client, rate, open)?;
        let outside = counted(|| client.open(rate, &|due| due >= open))?;
        // What was put outside is swept now, and what is put meanwhile again, for as long.
        let mut ran = 0.0;
        let during = counted(|| {
            let (latencies, swept) = swept(&store, &mut client, rate, open)?;
            ran = swept;
            Ok(latencies)
        })?;
        sweeping.push(ran);
        store.settle()?;
        let share = (during.1 - outside.1).clamp(0.0, 1.0);
        let beside = counted(|| beside_a_stranger(&mut client, rate, open, share))?;
        let mut all = [outside, during, beside];
        for (at, (latencies, cores)) in all.iter().enumerate() {
            lost[at].push(latencies.lost);
            cpu[at].push(*cores);
        }
        gets.add(all.each_mut().map(|(latencies, _)| latencies.gets.as_mut_slice()));
        puts.add(all.each_mut().map(|(latencies, _)| latencies.puts.as_mut_slice()));
    }
    let versions = std::mem::take(&mut client.versions);
    store.check_all(&keys, &values, &versions)?;
    drop(client);
    store.close()?;
    remove(&run.dir)?;
    let measured = Measurements { gets, puts, machine, lost, rates, cpu, sweeping };
    measured.show(run, count, open);
    Ok(())
}

/// All that the rounds brought.
struct Measurements {
    gets: Measured,
    puts: Measured,
    machine: Machine,
    /// Of the client, in each phase.
    lost: [Losses; 3],
    rates: Rounds,
    /// Cores used, in each phase.
    cpu: [Rounds; 3],
    sweeping: Rounds,
}

impl Measurements {
    fn show(&self, run: &mut Run, count: u64, open: Duration) {
        let Measurements { gets, puts, machine, lost, rates, cpu, sweeping } = self;
        run.sheet.head("F5: gets and puts during a sweep");
        let asked = match run.rate {
            Some(rate) => format!("at {} a second (a closed loop reached", show_count(rate as u64)),
            None => "at half of what a closed loop reached before (it was".to_string(),
        };
        run.sheet.line(&format!(
        "{} keys, {VALUE_BYTES} B, gets and puts of uniform keys, half each; Poisson arrivals {asked} \
         {} k/s), one client that spins until the next is due (the last row: \
         and then gets only, for as long, of a store that has nothing else to do); the \
         time is from when an operation was due. Without a sweep for {:.1} s, then as long while one \
         conversion follows the other ({} of the time one ran; {} cores were used, the client's among \
         them). Medians (lowest-highest) of {} rounds; must 2 times and, in the worst round, 100 ms, aim 1.3 and 20. Every \
         value read is checked.",
        show_count(count),
        rates.show(1e3, 0),
        open.as_secs_f64(),
        sweeping.show(1.0, 2),
        cpu[1].show(1.0, 1),
        run.rounds,
    ));
        let names = [
            "operation",
            "p99.9 without, us",
            "p99.9 during, us",
            "times",
            "stands",
            "longest without, ms",
            "longest during, ms",
            "stands",
        ];
        let row = |name: &str, m: &Measured| {
            vec![
                name.to_string(),
                m.p999[0].show(1e3, 0),
                m.p999[1].show(1e3, 0),
                m.times[0].show(1.0, 2),
                TIMES.judge_rounds(&m.times[0], 1.0),
                m.longest[0].show(1e6, 1),
                m.longest[1].show(1e6, 1),
                LONGEST.judge_worst(&m.longest[1], 1e6),
            ]
        };
        let mut alone = vec![String::new(); names.len()];
        alone[0] = "gets alone".to_string();
        alone[1] = machine.p999.show(1e3, 0);
        alone[5] = machine.longest.show(1e6, 1);
        run.sheet.table(&names, &[row("get", gets), row("put", puts), alone]);
        self.show_stranger(run);
        run.sheet.line(
            "The client's time that others had, by the kernel: it wanted to run and had no processor, or slept (for a \
             lock, the disk, the pace of writers). And what the host took of the machine's processors, added up, of which some may \
             have been the client's.",
        );
        let [without, during, beside] = lost;
        let row = |name: &str, lost: &Losses| {
            let shown = lost.show();
            [name.to_string()].into_iter().chain(shown).collect()
        };
        run.sheet.table(
            &["phase", "no processor, %", "asleep, %", "taken by the host, %"],
            &[
                row("without", without),
                row("during", during),
                row("beside a stranger", beside),
                row("gets alone", &machine.lost),
            ],
        );
    }

    fn show_stranger(&self, run: &mut Run) {
        run.sheet.line(&format!(
            "And without a sweep again, beside a stranger: a thread that touches nothing of the store and computes for as long as \
             sweeps did ({} cores were used then, {} without it).",
            self.cpu[2].show(1.0, 1),
            self.cpu[0].show(1.0, 1),
        ));
        let row = |name: &str, m: &Measured| {
            vec![
                name.to_string(),
                m.p999[2].show(1e3, 0),
                m.times[1].show(1.0, 2),
                m.times[2].show(1.0, 2),
                m.longest[2].show(1e6, 1),
            ]
        };
        run.sheet.table(
            &[
                "operation",
                "p99.9 beside a stranger, us",
                "times that without",
                "during sweeps, times that beside a stranger",
                "longest, ms",
            ],
            &[row("get", &self.gets), row("put", &self.puts)],
        );
    }
}

impl Measured {
    fn add(&mut self, mut latencies: [&mut [u64]; 3]) {
        let p999 = latencies.each_mut().map(|phase| percentile(phase, 0.999));
        let longest = latencies.each_mut().map(|phase| percentile(phase, 1.0));
        let [without, during, beside] = p999;
        let times = [during / without, beside / without, during / beside];
        for at in 0..3 {
            self.p999[at].push(p999[at]);
            self.longest[at].push(longest[at]);
            self.times[at].push(times[at]);
        }
    }
}

/// What a phase brings, and how many cores were used meanwhile.
fn counted(phase: impl FnOnce() -> Result<Latencies>) -> Result<(Latencies, f64)> {
    let (usage, clock) = (Usage::now(), Instant::now());
    let latencies = phase()?;
    Ok((latencies, Usage::now().since(usage).cpu_seconds / clock.elapsed().as_secs_f64()))
}

/// Has others stop when it goes, however that comes.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Computes for that share of the time, by what the kernel says that it ran (where it does not, by the clock), here and there in
/// memory of its own.
fn compute(share: f64, stop: &AtomicBool) {
    let (mut memory, mut at) = (vec![0u8; STRANGER_BYTES], 0);
    let (first, clock, mut computed) = (Turns::now(), Instant::now(), Duration::ZERO);
    while share > 0.0 && !stop.load(Relaxed) {
        let begun = Instant::now();
        while begun.elapsed() < PIECE {
            at = (at + 28_736) % memory.len();
            memory[at] = memory[at].wrapping_add(1);
        }
        computed += begun.elapsed();
        let ran = Turns::now().ran_since(first).unwrap_or(computed);
        // The stop is looked for between rests: none is longer than this makes it.
        std::thread::sleep(ran.div_f64(share.max(0.01)).saturating_sub(clock.elapsed()));
    }
    std::hint::black_box(memory);
}

/// An open loop beside a thread that computes for that share of the time.
fn beside_a_stranger(
    client: &mut Client<'_>,
    rate: f64,
    duration: Duration,
    share: f64,
) -> Result<Latencies> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        scope.spawn(|| compute(share, &stop));
        let latencies = client.open(rate, &|due| due >= duration);
        drop(stops);
        latencies
    })
}

/// An open loop while conversions run one after the other; also the share of the time one did.
fn swept(
    store: &Store,
    client: &mut Client<'_>,
    rate: f64,
    duration: Duration,
) -> Result<(Latencies, f64)> {
    let stop = AtomicBool::new(false);
    let (stop, clock) = (&stop, Instant::now());
    std::thread::scope(|scope| {
        let sweeper = scope.spawn(move || -> Result<Duration> {
            let mut ran = Duration::ZERO;
            while !stop.load(Relaxed) {
                let begun = Instant::now();
                store.keyspace.convert().map_err(|e| Error::engine("converting", e))?;
                ran += begun.elapsed();
            }
            Ok(ran)
        });
        let latencies = client.open(rate, &|due| due >= duration);
        let elapsed = clock.elapsed();
        stop.store(true, Relaxed);
        let ran = sweeper.join().map_err(|_| Error::runtime("the sweeping thread panicked"))??;
        // The last one goes on behind the loop.
        Ok((latencies?, (ran.as_secs_f64() / elapsed.as_secs_f64()).min(1.0)))
    })
}
