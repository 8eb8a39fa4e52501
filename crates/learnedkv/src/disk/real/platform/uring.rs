//! Reads through io_uring: many under way at once, one or two system calls for all of them.
//!
//! **Who owns a buffer.** From the moment a read is queued until its completion is taken, its buffer
//! is the ring's ([`Ring::under_way`]): neither an error nor a panic of the caller gives it back early.
//! A ring that is dropped with reads under way waits for them; if the kernel will not even let it
//! wait, the buffers are never freed. A leak is better than a write into somebody else's memory.
//!
//! **Rings** are made when they are needed, used by one call at a time, and kept for the next: at most
//! [`MOST_RINGS`]; who finds none goes without. A kernel that refuses the first is not asked again.
//! Nothing here starts a thread: no `SQPOLL`.
//!
//! **A process that was forked** has the rings of the one that it was forked from, and may not use them: both would put their
//! reads into one queue, and take each other's completions. It goes without.

use std::io::Result;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use io_uring::{IoUring, Probe, opcode, types};
use rustix::io::Errno;

use super::{MakeRaw, RawRead, TakeRaw};
use crate::disk::real::awake::Turn;

/// How many reads a ring has under way at once. Devices gain little beyond.
const DEPTH: usize = 64;
/// So many are given to the kernel together: the device begins with them while the next are queued; and so many are waited
/// for: it goes on while these are taken.
const GROUP: usize = 8;
/// The most rings at once: each takes some pages that the kernel locks in memory.
const MOST_RINGS: usize = 16;
/// Whoever waits awake looks so often before he asks the kernel, which tells what came only where it is called.
const LOOKS_A_CALL: u32 = 32;
const GET_EVENTS: u32 = 1; // IORING_ENTER_GETEVENTS
/// How often a kernel short of memory is asked again before the reads are done in another way.
const MOST_REFUSALS: u32 = 100;

/// The rings of a disk.
#[derive(Debug)]
pub(in crate::disk::real) struct Rings {
    state: Mutex<State>,
    /// Whose they are.
    process: u32,
}

impl Default for Rings {
    fn default() -> Rings {
        Rings { state: Mutex::default(), process: std::process::id() }
    }
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Ring>,
    /// Those that are idle and those in use.
    made: usize,
    /// Whether the kernel has none for us; `None`: not asked yet.
    are_refused: Option<bool>,
}

impl Rings {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kernel allows rings; asked once.
    pub(in crate::disk::real) fn are_allowed(&self) -> bool {
        if !self.are_ours() {
            return false;
        }
        if let Some(refused) = self.state().are_refused {
            return !refused;
        }
        if let Some(ring) = self.borrow() {
            self.give_back(ring);
        }
        self.state().are_refused == Some(false)
    }

    /// Does `reads`, and hands each that it could do to `take` as it comes.
    pub(in crate::disk::real) fn read<'a>(
        &self,
        reads: &mut MakeRaw<'_, 'a>,
        take: &mut TakeRaw<'_, 'a>,
    ) {
        self.do_reads(reads, take, None);
    }

    /// The same of one read that is waited for awake, as long as it is the `turn` for that.
    pub(in crate::disk::real) fn read_awake<'a>(
        &self,
        read: RawRead<'a>,
        take: &mut TakeRaw<'_, 'a>,
        turn: &Turn<'_>,
    ) {
        self.do_reads(&mut std::iter::once(read), take, Some(turn));
    }

    fn do_reads<'a>(
        &self,
        reads: &mut MakeRaw<'_, 'a>,
        take: &mut TakeRaw<'_, 'a>,
        turn: Option<&Turn<'_>>,
    ) {
        if let Some(ring) = self.borrow() {
            Borrowed { rings: self, ring: Some(ring) }.read(reads, take, turn);
        }
    }

    fn are_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn borrow(&self) -> Option<Ring> {
        if !self.are_ours() {
            return None;
        }
        let mut state = self.state();
        if state.are_refused == Some(true) {
            return None;
        }
        if let Some(ring) = state.idle.pop() {
            return Some(ring);
        }
        if state.made == MOST_RINGS {
            return None;
        }
        state.made += 1;
        drop(state);
        let made = Ring::new();
        let mut state = self.state();
        match made {
            Ok(ring) => {
                state.are_refused = Some(false);
                Some(ring)
            }
            Err(e) => {
                state.made -= 1;
                // What may pass: too many open files, no memory. All else is for good: `ENOSYS`
                // (old kernels), `EPERM` (containers), no reads (kernels before 5.6).
                let passes = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
                let passes = passes.iter().any(|p| e.raw_os_error() == Some(p.raw_os_error()));
                if !passes && state.are_refused.is_none() {
                    state.are_refused = Some(true);
                }
                None
            }
        }
    }

    fn give_back(&self, ring: Ring) {
        if ring.is_idle() {
            self.state().idle.push(ring);
        } else {
            // Waits; not under the lock.
            drop(ring);
            self.state().made -= 1;
        }
    }
}

/// A ring in use. It goes back, also where whoever takes what it reads panics.
struct Borrowed<'r> {
    rings: &'r Rings,
    ring: Option<Ring>,
}

impl Borrowed<'_> {
    fn read<'a>(
        &mut self,
        reads: &mut MakeRaw<'_, 'a>,
        take: &mut TakeRaw<'_, 'a>,
        turn: Option<&Turn<'_>>,
    ) {
        if let Some(ring) = &mut self.ring {
            ring.read(reads, take, turn);
        }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.rings.give_back(ring);
        }
    }
}

/// A read that the kernel knows of, or soon will.
#[derive(Debug)]
struct UnderWay {
    /// Which of the caller's reads it is.
    read: usize,
    buffer: Vec<u8>,
}

struct Ring {
    ring: IoUring,
    /// By the number that the kernel gives back with the completion.
    under_way: Vec<Option<UnderWay>>,
    /// Numbers that are not under way.
    free: Vec<usize>,
    /// Those that are queued, and that the kernel has not taken yet.
    queued: usize,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} of {DEPTH} under way)", DEPTH - self.free.len())
    }
}

impl Ring {
    fn new() -> Result<Ring> {
        // Completions are looked for by whoever waits for them: no interrupts of other threads.
        // Kernels before 5.19 do not know the flag.
        let built = IoUring::builder().setup_coop_taskrun().build(DEPTH as u32);
        let ring = built.or_else(|_| IoUring::new(DEPTH as u32))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        let under_way = (0..DEPTH).map(|_| None).collect();
        Ok(Ring { ring, under_way, free: (0..DEPTH).rev().collect(), queued: 0 })
    }

    fn is_idle(&self) -> bool {
        self.free.len() == DEPTH
    }

    fn read<'a>(
        &mut self,
        reads: &mut MakeRaw<'_, 'a>,
        take: &mut TakeRaw<'_, 'a>,
        turn: Option<&Turn<'_>>,
    ) {
        let mut reads = reads.peekable();
        // Those that were queued, by their numbers; the ring has their buffers.
        let mut queued: Vec<RawRead<'a>> = Vec::new();
        loop {
            while let Some(slot) = self.free.last().copied() {
                let Some(mut read) = reads.next() else { break };
                self.queue(slot, queued.len(), &mut read);
                queued.push(read);
                if self.queued == GROUP && reads.peek().is_some() && !self.enter(0) {
                    return;
                }
            }
            if self.is_idle() {
                return;
            }
            if !self.wait(turn) {
                return;
            }
            self.reap(|UnderWay { read, buffer }, result| {
                let found = u32::try_from(result).map(|found| found as usize);
                let found = found.map_err(|_| std::io::Error::from_raw_os_error(-result));
                let RawRead { file, offset_bytes, start, .. } = queued[read];
                take(read, RawRead { file, offset_bytes, buffer, start }, found);
            });
        }
    }

    /// Queues a read under the number `slot`, the last free one.
    #[allow(unsafe_code)]
    fn queue(&mut self, slot: usize, index: usize, read: &mut RawRead<'_>) {
        let buffer = std::mem::take(&mut read.buffer);
        let length = (buffer.len() - read.start) as u32;
        let under_way = self.under_way[slot].insert(UnderWay { read: index, buffer });
        let target = under_way.buffer[read.start..].as_mut_ptr();
        let entry = opcode::Read::new(types::Fd(read.file.as_raw_fd()), target, length)
            .offset(read.offset_bytes)
            .build()
            .user_data(slot as u64);
        // SAFETY: the `length` bytes at `target` are of a buffer that `under_way` owns, which nobody
        // else reads or writes, and which neither moves nor is freed before its completion is taken
        // (`reap`) or the ring is dropped (which waits, or leaks it). The file is open while the
        // kernel may take the entry: `read` borrows it, and a ring with queued entries is dropped
        // without entering them.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("a ring has room for as many reads as may be under way");
        self.free.pop();
        self.queued += 1;
    }

    /// Gives what is queued to the kernel and waits for completions: awake for one, asleep for several. False: the kernel
    /// does not go on.
    fn wait(&mut self, turn: Option<&Turn<'_>>) -> bool {
        let Some(turn) = turn.filter(|turn| turn.is_on()) else {
            return self.enter((DEPTH - self.free.len()).min(GROUP));
        };
        if !self.enter(0) {
            return false;
        }
        let mut looks = 0;
        while self.ring.completion().is_empty() {
            looks += 1;
            if looks % LOOKS_A_CALL != 0 {
                std::hint::spin_loop();
            } else if !self.collect() || !turn.goes_on() {
                return self.enter(1);
            }
        }
        turn.end();
        true
    }

    /// Has the kernel say what came. False: it does not.
    #[allow(unsafe_code)]
    fn collect(&mut self) -> bool {
        // SAFETY: no argument goes with the call: it waits for nothing and enters nothing.
        unsafe { self.ring.submitter().enter::<()>(0, 0, GET_EVENTS, None) }.is_ok()
    }

    /// Gives what is queued to the kernel and waits for `wanted` completions, or fewer. False: the
    /// kernel does not go on.
    fn enter(&mut self, wanted: usize) -> bool {
        let mut refusals = 0;
        loop {
            match self.ring.submit_and_wait(wanted) {
                Ok(taken) => {
                    self.queued = self.queued.saturating_sub(taken);
                    return true;
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // Short of memory, or of room for completions: those that are there come first.
                Err(e)
                    if matches!(Errno::from_io_error(&e), Some(Errno::AGAIN | Errno::BUSY))
                        && refusals < MOST_REFUSALS =>
                {
                    if !self.ring.completion().is_empty() {
                        return true;
                    }
                    refusals += 1;
                    std::thread::yield_now();
                }
                Err(_) => return false,
            }
        }
    }

    /// Takes the completions that are there.
    fn reap(&mut self, mut done: impl FnMut(UnderWay, i32)) {
        while let Some(completion) = self.ring.completion().next() {
            let slot = completion.user_data() as usize;
            let Some(under_way) = self.under_way.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            self.free.push(slot);
            done(under_way, completion.result());
        }
    }
}

impl Drop for Ring {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // What is only queued is never entered from here on, and needs no waiting for.
        while DEPTH - self.free.len() > self.queued {
            self.reap(drop_both);
            if DEPTH - self.free.len() <= self.queued {
                break;
            }
            // SAFETY: no argument goes with the call: it waits for one completion and enters nothing.
            let waited = unsafe { self.ring.submitter().enter::<()>(0, 1, GET_EVENTS, None) };
            match waited {
                Err(e) if e.kind() != std::io::ErrorKind::Interrupted => {
                    std::mem::forget(std::mem::take(&mut self.under_way));
                    return;
                }
                _ => {}
            }
        }
    }
}

fn drop_both(_: UnderWay, _: i32) {}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use learnedkv_skips::skip;

    use super::*;
    use crate::disk::real::awake::Awake;

    /// A ring, or `None`, said aloud, where the kernel forbids them.
    fn ring() -> Option<Ring> {
        let ring = Ring::new();
        if let Err(e) = &ring {
            skip("io_uring", &format!("the kernel gives none: {e}"));
        }
        ring.ok()
    }

    fn raw(file: &File, length: usize) -> RawRead<'_> {
        RawRead { file, offset_bytes: 0, buffer: vec![0; length], start: 0 }
    }

    /// Rings that are idle, and all.
    fn counts(rings: &Rings) -> (usize, usize) {
        let state = rings.state();
        (state.idle.len(), state.made)
    }

    #[test]
    fn a_ring_that_goes_waits_for_what_is_under_way() {
        let Some(mut ring) = ring() else { return };
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = File::from(OwnedFd::from(reader));
        let mut read = raw(&reader, 100);
        let slot = ring.free[DEPTH - 1];
        ring.queue(slot, 0, &mut read);
        assert!(ring.enter(0) && ring.queued == 0 && !ring.is_idle());
        let written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                written.store(true, Ordering::SeqCst);
                writer.write_all(b"late").unwrap();
            });
            drop(ring);
            assert!(written.load(Ordering::SeqCst), "the kernel could still write to the buffer");
        });
        assert!(read.buffer.is_empty());
    }

    #[test]
    fn what_is_only_queued_is_not_waited_for() {
        let Some(mut ring) = ring() else { return };
        let (reader, _writer) = std::io::pipe().unwrap();
        let reader = File::from(OwnedFd::from(reader));
        let slot = ring.free[DEPTH - 1];
        ring.queue(slot, 0, &mut raw(&reader, 100));
        drop(ring); // or the test never ends
    }

    #[test]
    #[allow(unsafe_code)]
    fn a_ring_that_fails_leaves_the_reads_and_is_not_used_again() {
        let (rings, dir) = (Rings::default(), tempfile::tempdir().unwrap());
        if !rings.are_allowed() {
            return skip("io_uring", "the kernel gives none");
        }
        std::fs::write(dir.path().join("a"), [7; 300]).unwrap();
        let file = File::open(dir.path().join("a")).unwrap();
        // What stands behind the ring's number is no ring any more: each entering is refused.
        let number = rings.state().idle[0].ring.as_raw_fd();
        // SAFETY: the number is the ring's, which is open and has nothing under way; it is not
        // closed here, the ring does that.
        let mut number = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        rustix::io::dup2(&file, &mut number).unwrap();
        let mut reads = [raw(&file, 100), raw(&file, 100)].into_iter();
        rings.read(&mut reads, &mut |_, _, _| panic!("it did one"));
        assert_eq!(counts(&rings), (0, 0));
        let mut came = [0; 2];
        let mut reads = [raw(&file, 100), raw(&file, 400)].into_iter();
        rings.read(&mut reads, &mut |at, _, found| {
            came[at] = found.unwrap();
        });
        assert_eq!(came, [100, 300], "the next ring is a fresh one");
    }

    /// A device may take its time: nobody spins for that long, and the answer is not missed.
    #[test]
    fn what_comes_late_is_waited_for_asleep() {
        let (rings, awake) = (Rings::default(), Awake::alone(1));
        if !rings.are_allowed() {
            return skip("io_uring", "the kernel gives none");
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = File::from(OwnedFd::from(reader));
        let (turn, mut came) = (awake.begin().turn().unwrap(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                writer.write_all(b"late").unwrap();
            });
            rings.read_awake(raw(&reader, 4), &mut |_, read, _| came = Some(read.buffer), &turn);
        });
        assert_eq!(came.as_deref(), Some(&b"late"[..]));
        assert!(awake.begin().turn().is_none(), "the next ones sleep");
        assert_eq!(counts(&rings), (1, 1));
    }

    /// Parent and child took each other's completions: one waited for ever, or crashed, or told of damage that was none.
    #[test]
    fn a_process_that_was_forked_uses_no_ring_of_the_one_before() {
        let rings = Rings { process: std::process::id() ^ 1, ..Rings::default() };
        let file = tempfile::tempfile().unwrap();
        rings.read(&mut [raw(&file, 1), raw(&file, 1)].into_iter(), &mut |_, _, _| panic!("read"));
        assert!(!rings.are_allowed() && counts(&rings) == (0, 0));
    }

    /// Whoever takes a read may do so while others are under way: their buffers are the kernel's until it has filled them.
    #[test]
    fn a_panic_of_who_takes_a_read_waits_for_the_others_and_counts_no_ring_twice() {
        let (rings, dir) = (Rings::default(), tempfile::tempdir().unwrap());
        if !rings.are_allowed() {
            return skip("io_uring", "the kernel gives none");
        }
        std::fs::write(dir.path().join("a"), [7; 300]).unwrap();
        let file = File::open(dir.path().join("a")).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = File::from(OwnedFd::from(reader));
        for _ in 0..=MOST_RINGS {
            // All but one can be done; that one is under way when the first of the others comes.
            let mut reads =
                std::iter::once(raw(&reader, 100)).chain((0..2 * GROUP).map(|_| raw(&file, 100)));
            let late = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(20));
                    late.store(true, Ordering::SeqCst);
                    writer.write_all(&[1; 100]).unwrap();
                });
                let taken = std::panic::AssertUnwindSafe(|| {
                    rings.read(&mut reads, &mut |_, _, _| std::panic::resume_unwind(Box::new(())));
                });
                assert!(std::panic::catch_unwind(taken).is_err());
                assert!(late.load(Ordering::SeqCst), "the kernel could still write to a buffer");
            });
        }
        let (mut came, mut reads) = (0, [raw(&file, 100), raw(&file, 100)].into_iter());
        rings.read(&mut reads, &mut |_, _, _| came += 1);
        assert_eq!((came, counts(&rings)), (2, (1, 1)));
    }

    #[test]
    fn many_more_reads_than_a_ring_holds_go_through_one() {
        let (rings, dir) = (Rings::default(), tempfile::tempdir().unwrap());
        if !rings.are_allowed() {
            return skip("io_uring", "the kernel gives none");
        }
        let content: Vec<u8> = (0..1000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(dir.path().join("a"), &content).unwrap();
        let file = File::open(dir.path().join("a")).unwrap();
        let reads = || (0..1000).map(|i| RawRead { offset_bytes: i * 4, ..raw(&file, 4) });
        for _ in 0..3 {
            let mut came = vec![0; 1000];
            rings.read(&mut reads(), &mut |at, read, found| {
                assert_eq!((found.unwrap(), read.offset_bytes), (4, 4 * at as u64));
                assert_eq!(read.buffer, (at as u32).to_le_bytes());
                came[at] += 1;
            });
            assert_eq!(came, [1; 1000]);
        }
        assert_eq!(counts(&rings), (1, 1));
    }
}
