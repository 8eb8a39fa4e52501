//! F9: reopening after a real `kill -9`. A child of this program fills the store and is killed.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::kernel::forget_pages;
use super::sheet::{Rounds, Target};
use super::store::{MEMTABLE_BYTES, Shape, Store, VALUE_BYTES};
use super::usual::UsualArgs;
use super::{Run, Scale, remove};
use crate::keys::{Generator, KeySet};
use crate::random::{Permutation, Rng};
use crate::sizes::show_count;
use crate::values::{ValueSize, Values};
use crate::{Error, Result};

const REOPEN: Target = Target::AtMost { must: 1.0, aim: 0.3 };
const KEYS: u64 = 1_000_000;
/// How full the memtable is when the child is killed.
const FULL_SHARE: f64 = 0.97;
const CHECKS: u64 = 20_000;

/// What the child is told: `learnedkv-bench figures-fill`.
#[derive(Debug, Clone, clap::Args)]
pub struct FillArgs {
    /// Directory of the store
    #[arg(long)]
    dir: PathBuf,
    /// Scale of the figures
    #[arg(long)]
    scale: String,
    /// Seed of the keys
    #[arg(long)]
    seed: u64,
    /// The version to put
    #[arg(long)]
    version: u32,
    #[command(flatten)]
    usual: UsualArgs,
}

/// Keys, values, and the order in which they are updated.
struct Data {
    keys: KeySet,
    values: Values,
    order: Permutation,
}

impl Data {
    fn new(scale: Scale, seed: u64, shape: Shape) -> Data {
        let keys = Generator::Uniform.generate(scale.of(KEYS) as usize, seed);
        let order = Permutation::new(keys.len() as u64, seed);
        let values = Values::new(ValueSize::Fixed(VALUE_BYTES), seed);
        Data { keys, values: shape.values(&values), order }
    }

    fn updated(&self, position: u64) -> usize {
        self.order.at(position) as usize
    }
}

impl FillArgs {
    /// Fills the memtable over the settled store, says how many puts that took, and waits for death.
    ///
    /// # Errors
    /// If the store fails.
    pub fn run(&self) -> Result<()> {
        let scale: Scale = self.scale.parse()?;
        let shape = self.usual.or(Shape::default())?;
        let data = Data::new(scale, self.seed, shape);
        let store = Store::open(&self.dir, scale, shape)?;
        if self.version == 2 {
            store.ingest(&data.keys, &data.values)?;
        }
        // Nothing of an earlier round is in the memtable.
        store.settle()?;
        let full_bytes = scale.of(MEMTABLE_BYTES) as f64 * FULL_SHARE;
        let (mut value, mut puts) = (Vec::new(), 0);
        while puts < data.keys.len() as u64 {
            let key = data.keys.key(data.updated(puts));
            data.values.fill(key.as_ref(), self.version, &mut value);
            store.insert(key.as_ref(), &value)?;
            puts += 1;
            if store.keyspace_stats()?.memtable_bytes as f64 >= full_bytes {
                break;
            }
        }
        let mut out = std::io::stdout();
        std::io::Write::write_all(&mut out, format!("{puts}\n").as_bytes())
            .map_err(|e| Error::output(&e))?;
        // The parent kills us; if it died itself, its end of our standard input is closed.
        let _ = std::io::stdin().read_line(&mut String::new());
        Ok(())
    }
}

/// Ends the child however the round ends.
struct Doomed(Child);

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let shape = run.usual.or(Shape::default())?;
    let data = Data::new(run.scale, run.seed, shape);
    let (mut rows, mut version, mut log_mib) = (Vec::new(), 1, Rounds::default());
    for cold in [false, true] {
        let [mut open, mut first, mut both] = [(); 3].map(|()| Rounds::default());
        let mut recovered = Rounds::default();
        for _ in 0..run.rounds {
            version += 1;
            let puts = fill_and_kill(run, version)?;
            if cold {
                forget_pages(&run.dir)?;
            }
            let mut scratch = Vec::new();
            let rank = data.updated(puts / 2);
            let clock = Instant::now();
            let store = Store::open(&run.dir, run.scale, shape)?;
            let opened_s = clock.elapsed().as_secs_f64();
            store.check(data.keys.key(rank).as_ref(), &data.values, version, &mut scratch)?;
            let seconds = clock.elapsed().as_secs_f64();
            open.push(opened_s);
            first.push(seconds - opened_s);
            both.push(seconds);
            log_mib.push(store.stats().log_bytes as f64 / f64::from(1 << 20));
            recovered.push(store.database.open_report().recovered_operations as f64);
            check(&data, &store, puts, version, run.seed)?;
            store.close()?;
        }
        rows.push(vec![
            if cold { "cold" } else { "warm" }.to_string(),
            both.show(1.0, 3),
            open.show(1.0, 3),
            first.show(1e-6, 0),
            recovered.show(1.0, 0),
            REOPEN.judge_rounds(&both, 1.0),
        ]);
    }
    remove(&run.dir)?;
    run.sheet.head("F9: reopening after `kill -9`");
    run.sheet.line(&format!(
        "{} settled keys of {VALUE_BYTES} B and a memtable {:.0} % full (log segments of {:.0} MiB); a \
         child process is killed by SIGKILL; then open and the first get, of a key only the log \
         holds. Seconds as median (lowest-highest) of {} rounds; must 1, aim 0.3. Cold: the files \
         were synced and the kernel told to drop their pages (fadvise); warm: it was not. Every key \
         the child put, and others, are checked afterwards.",
        show_count(data.keys.len() as u64),
        FULL_SHARE * 100.0,
        log_mib.median(),
        run.rounds
    ));
    let names =
        ["page cache", "open and first get, s", "open, s", "first get, us", "operations", "stands"];
    run.sheet.table(&names, &rows);
    Ok(())
}

/// Has a child fill the store and kills it; returns how many updates it acknowledged.
fn fill_and_kill(run: &Run, version: u32) -> Result<u64> {
    let program = std::env::current_exe().map_err(|e| Error::engine("finding this program", e))?;
    let child = Command::new(program)
        .args(["figures-fill", "--scale", run.scale.name()])
        .args(["--seed", &run.seed.to_string(), "--version", &version.to_string()])
        .args(run.usual.arguments())
        .arg("--dir")
        .arg(&run.dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Error::engine("starting the child", e))?;
    let mut child = Doomed(child);
    let mut line = String::new();
    if let Some(out) = child.0.stdout.take() {
        let mut out = BufReader::new(out);
        out.read_line(&mut line).map_err(|e| Error::engine("listening to the child", e))?;
    }
    let puts = line.trim().parse();
    let puts = puts.map_err(|_| Error::runtime(format!("the child failed; it said {line:?}")))?;
    // SIGKILL.
    child.0.kill().map_err(|e| Error::engine("killing the child", e))?;
    Ok(puts)
}

/// All that the child put is there; what it did not is as settled in some earlier round.
fn check(data: &Data, store: &Store, puts: u64, version: u32, seed: u64) -> Result<()> {
    let mut scratch = Vec::new();
    for position in 0..puts {
        let key = data.keys.key(data.updated(position));
        store.check(key.as_ref(), &data.values, version, &mut scratch)?;
    }
    let mut rng = Rng::seeded(seed);
    for _ in 0..CHECKS.min(data.keys.len() as u64) {
        let position = puts + rng.below((data.keys.len() as u64 - puts).max(1));
        if position >= data.keys.len() as u64 {
            break;
        }
        let key = data.keys.key(data.updated(position));
        let found = store.keyspace.get(key).map_err(|e| Error::engine("a get", e))?;
        let Some(found) = found else {
            return Err(Error::wrong_answer("a settled key is gone"));
        };
        // Rounds fill to about the same position: near its end an earlier round may have gone on.
        data.values
            .check(key.as_ref(), 1..=version, &found, &mut scratch)
            .map_err(|mismatch| Error::wrong_answer(mismatch.to_string()))?;
    }
    Ok(())
}
