//! What the kernel says: the witness against the store's own counters.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::sheet::Rounds;
use crate::run::resources::{Usage, field};
use crate::{Error, Result};

/// What the kernel counted for this process.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    /// Calls that read.
    pub read_calls: u64,
    /// Bytes fetched from the block layer.
    pub read_bytes: u64,
}

impl Counted {
    /// The counters now. Reading them is itself a call or two.
    pub fn now() -> Counted {
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        Counted {
            read_calls: field(&io, "syscr:").unwrap_or(0),
            read_bytes: Usage::now().read_bytes,
        }
    }

    /// What was counted since `earlier`.
    pub fn since(self, earlier: Counted) -> Counted {
        Counted {
            read_calls: self.read_calls - earlier.read_calls,
            read_bytes: self.read_bytes - earlier.read_bytes,
        }
    }
}

/// The kernel's ticks of processor time a second (`USER_HZ`), the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time of this process and of its children that have ended: figures in processes of their own
/// are not others.
fn own_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    Usage::now().cpu_seconds + children_ticks(&stat) as f64 / TICKS_PER_SECOND
}

/// The ticks of ended children, user and system, from `/proc/self/stat`: the fields 16 and 17, counted
/// behind the name, which may hold anything and is the second.
fn children_ticks(stat: &str) -> u64 {
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    behind.split_whitespace().skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// What a thread got of a time: from `/proc/thread-self/schedstat`.
#[derive(Debug, Clone, Copy)]
pub struct Turns {
    at: Instant,
    /// It ran, ns, and wanted to while others did.
    ran_and_waited: Option<(u64, u64)>,
}

/// Where the time of a thread went that would always run, as shares of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lost {
    /// Waiting for a processor that others had.
    pub queued: f64,
    /// Asleep: for a lock, the disk, or because it was told to.
    pub asleep: f64,
    /// While the host ran something else on a processor of this machine, added up over these: some of it may have been
    /// the thread's. 0 also where it is no guest.
    pub stolen: f64,
}

/// The beginning of a time that is taken account of.
#[derive(Debug)]
pub struct Account {
    turns: Turns,
    stolen_ticks: u64,
}

impl Account {
    /// From now on, of this thread.
    pub fn begin() -> Account {
        Account { turns: Turns::now(), stolen_ticks: stolen(&ticks()) }
    }

    /// What was lost until now; `None` where the kernel does not say.
    pub fn lost(&self) -> Option<Lost> {
        self.lost_until(&Account::begin())
    }

    fn lost_until(&self, now: &Account) -> Option<Lost> {
        let (queued, asleep) = now.turns.lost_since(self.turns)?;
        let seconds = now.turns.at.duration_since(self.turns.at).as_secs_f64();
        let stolen_ticks = now.stolen_ticks.saturating_sub(self.stolen_ticks);
        Some(Lost { queued, asleep, stolen: stolen_ticks as f64 / TICKS_PER_SECOND / seconds })
    }
}

/// Ticks of all processors since the machine started: user nice system idle iowait irq softirq steal; guests are counted in
/// user already.
fn ticks() -> Vec<u64> {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    all.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect()
}

/// Those that the host took.
fn stolen(ticks: &[u64]) -> u64 {
    ticks.get(7).copied().unwrap_or(0)
}

impl Turns {
    /// This thread's, now.
    pub fn now() -> Turns {
        let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        Turns { at: Instant::now(), ran_and_waited: Turns::read(&stat) }
    }

    fn read(stat: &str) -> Option<(u64, u64)> {
        let mut fields = stat.split_whitespace().map(|field| field.parse().ok());
        Some((fields.next()??, fields.next()??))
    }

    /// How long this thread has run since `earlier`, which is its own too; `None` where the kernel does not say.
    pub fn ran_since(self, earlier: Turns) -> Option<Duration> {
        let ((ran, _), (then, _)) = (self.ran_and_waited?, earlier.ran_and_waited?);
        Some(Duration::from_nanos(ran.saturating_sub(then)))
    }

    /// How much of the time since `earlier`, which is this thread's too, it waited for a processor, and slept; `None` where the
    /// kernel does not say.
    fn lost_since(self, earlier: Turns) -> Option<(f64, f64)> {
        let ((ran, waited), (ran_then, waited_then)) =
            (self.ran_and_waited?, earlier.ran_and_waited?);
        let all = self.at.duration_since(earlier.at).as_nanos() as f64;
        let [ran, waited] = [ran - ran_then, waited - waited_then].map(|ns| ns as f64 / all);
        Some((waited, (1.0 - ran - waited).max(0.0)))
    }
}

/// What a client lost to others in each round, shares of its time.
#[derive(Default)]
pub struct Losses {
    queued: Rounds,
    asleep: Rounds,
    stolen: Rounds,
}

impl Losses {
    /// Adds a round.
    pub fn push(&mut self, lost: Option<Lost>) {
        let Some(Lost { queued, asleep, stolen }) = lost else { return };
        self.queued.push(queued);
        self.asleep.push(asleep);
        self.stolen.push(stolen);
    }

    /// Per cent without a processor, asleep, and taken by the host; where the kernel does not say, dashes.
    pub fn show(&self) -> [String; 3] {
        [&self.queued, &self.asleep, &self.stolen].map(|rounds| match rounds.count() {
            0 => "-".to_string(),
            _ => rounds.show(0.01, 1),
        })
    }
}

/// How busy the machine's cores are, and how much of it is this process with its children.
#[derive(Debug)]
pub struct Busy {
    since: Instant,
    own_seconds: f64,
    busy_ticks: u64,
    all_ticks: u64,
}

impl Busy {
    /// The counters now.
    pub fn now() -> Busy {
        let ticks = ticks();
        let idle_ticks: u64 = ticks.iter().skip(3).take(2).sum();
        let all_ticks = ticks.iter().sum();
        Busy {
            since: Instant::now(),
            own_seconds: own_seconds(),
            busy_ticks: all_ticks - idle_ticks,
            all_ticks,
        }
    }

    /// How many cores others kept busy since then, on average; other guests of the host included.
    pub fn others_cores(&self) -> f64 {
        let now = Busy::now();
        let share = (now.busy_ticks - self.busy_ticks) as f64
            / (now.all_ticks - self.all_ticks).max(1) as f64;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let own = (now.own_seconds - self.own_seconds) / self.since.elapsed().as_secs_f64();
        (share * cores as f64 - own).max(0.0)
    }
}

/// The device and file system that hold `path`, as far as the kernel tells.
pub fn disk_of(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut best: Option<[&str; 3]> = None;
    for line in mounts.lines() {
        let mut words = line.split_whitespace();
        if let (Some(device), Some(target), Some(kind)) = (words.next(), words.next(), words.next())
            && absolute.starts_with(target)
            && best.is_none_or(|[_, old, _]| old.len() <= target.len())
        {
            best = Some([device, target, kind]);
        }
    }
    best.map_or("disk unknown".to_string(), |[device, _, kind]| format!("{kind} on {device}"))
}

/// Has the kernel forget its cached pages of the files in `dir` (written back first).
///
/// # Errors
/// If a file cannot be opened or synced.
pub fn forget_pages(dir: &Path) -> Result<()> {
    let entries = fs::read_dir(dir).map_err(|e| Error::io("read", dir, &e))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(file) = fs::File::open(&path) else { continue };
        file.sync_all().map_err(|e| Error::io("sync", &path, &e))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .map_err(|e| Error::io("drop the pages of", &path, &e.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_lost_is_what_it_neither_ran_nor_meant_to_sleep() {
        assert_eq!(Turns::read("967 1031 245\n"), Some((967, 1031)));
        assert_eq!([Turns::read(""), Turns::read("967"), Turns::read("a 1 2")], [None; 3]);
        let at = Instant::now();
        let turns =
            |ms, ran_and_waited| Turns { at: at + Duration::from_millis(ms), ran_and_waited };
        let then = turns(0, Some((500, 700)));
        let lost = turns(1, Some((500_500, 250_700))).lost_since(then);
        assert_eq!(lost, Some((0.25, 0.25)));
        assert_eq!(turns(1, None).lost_since(then), None);
        let ran = turns(1, Some((500_500, 700))).ran_since(then);
        assert_eq!(ran, Some(Duration::from_micros(500)));
        assert_eq!(turns(1, None).ran_since(then), None);
        // What ran is counted a little late.
        let lost = turns(1, Some((1_000_600, 700))).lost_since(then);
        assert_eq!(lost, Some((0.0, 0.0)));
    }

    #[test]
    fn where_the_kernel_does_not_say_what_was_lost_nothing_is_said() {
        let mut losses = Losses::default();
        losses.push(None);
        assert_eq!(losses.show(), ["-", "-", "-"]);
        losses.push(Some(Lost { queued: 0.02, asleep: 0.5, stolen: 1.5 }));
        assert_eq!(losses.show(), ["2.0 (2.0-2.0)", "50.0 (50.0-50.0)", "150.0 (150.0-150.0)"]);
    }

    #[test]
    fn what_the_host_took_is_the_eighth_of_the_ticks() {
        assert_eq!(stolen(&[1, 2, 3, 4, 5, 6, 7, 8]), 8);
        assert_eq!(stolen(&[1, 2, 3, 4]), 0, "an old kernel, or none");
        let at = Instant::now();
        let account = |ms, ran_and_waited, stolen_ticks| Account {
            turns: Turns { at: at + Duration::from_millis(ms), ran_and_waited },
            stolen_ticks,
        };
        let then = account(0, Some((0, 0)), 40);
        // Of two processors, for longer than there was on one.
        let now = account(250, Some((125_000_000, 62_500_000)), 90);
        let lost = Lost { queued: 0.25, asleep: 0.25, stolen: 2.0 };
        assert_eq!(then.lost_until(&now), Some(lost));
        assert_eq!(then.lost_until(&account(250, None, 90)), None);
        // What it is said to have taken grows less at times.
        let lost = then.lost_until(&account(250, Some((125_000_000, 0)), 39));
        assert_eq!(lost, Some(Lost { queued: 0.0, asleep: 0.5, stolen: 0.0 }));
    }

    #[test]
    fn what_children_used_is_read_behind_a_name_that_holds_anything() {
        let stat = "42 (a b) 7 (c) S 1 42 42 0 -1 4194304 900 8 7 6 11 12 130 25 20 0 1 0 99";
        assert_eq!(children_ticks(stat), 155);
        assert_eq!(children_ticks(""), 0);
        assert!(own_seconds() > 0.0);
    }
}
