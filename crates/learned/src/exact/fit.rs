//! Plans numeric chunks: chooses block ends and a line, so that few bits name the separators.
//!
//! 1. A first walk ends every block in the middle of its window and gives the narrowest strip's line.
//! 2. For a grid, a walk along the line ends each block where the window's grid value lies nearest
//!    to the line: the blocks' sizes steer the sequence. A window without a grid value is a miss.
//! 3. The residuals' width is that for which width and exceptions (misses, and what lies too far
//!    out) cost least. What each grid will cost is estimated from the windows alone, so that only
//!    the best by the estimate is walked.
//! 4. Where blocks have entries enough to steer with, the line is fitted again to what that walk
//!    covered, and 2 to 3 repeated, also with the next coarser grid.

use std::hint::select_unpredictable;

use super::numeric::{FRACTION, line};
use super::windows::{Buffered, roundest};
use super::{Chunk, Cut, Kind, MOST_BLOCKS, Separator, common_prefix, embed};
use crate::bytes::Writer;
use crate::monotone::bits::{BitWriter, bits_of, mask};
use crate::monotone::strip::{Scratch, narrowest_slope};

/// A block may end in the last tenth of its size.
const SLACK: u64 = 10;
/// Outliers beyond this many are not looked for.
const MOST_OUTLIERS: usize = 16;
/// What comes before a body's codes seldom takes more, its prefix left out.
const HEADER_BYTES: usize = 32;
/// So many of a window's numbers are looked at one by one.
const FEW: usize = 4;

/// The line that a walk follows, and its grid.
#[derive(Clone, Copy, Debug)]
struct Course {
    shift: u32,
    /// In cells per block, fixed point.
    slope: u64,
    /// The cell above `base >> shift` that the line begins in.
    start: i64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    /// One past the block's last entry.
    end: u32,
    /// The separator above the block.
    value: u64,
    /// Its cell above the line through `base >> shift`; meaningless for a miss.
    residual: i64,
    miss: bool,
}

/// What a walk costs, and the strip of residuals that are stored as such.
#[derive(Clone, Copy, Debug)]
struct Cover {
    low: i64,
    width: u32,
    exceptions: usize,
    bits: u64,
}

/// Where the block that begins at entry `start` may end: in a gap from `first` to `last`, above the
/// number `low` and not above `high`.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: usize,
    first: usize,
    last: usize,
    low: u64,
    high: u64,
}

/// What planning fills anew for each chunk, kept for the next: lists of a chunk's blocks mostly.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The last walk's, or those of an older one in the place of what was kept of it.
    steps: Vec<Step>,
    /// The windows that the last walk met, and behind them those of walks that ended more blocks: where a
    /// block begins as before, its window is not looked for again. Walks mostly differ in few ends.
    windows: Vec<Window>,
    /// The cheapest walk's.
    best_steps: Vec<Step>,
    /// The number of each entry that was asked for, 0 of others: walks ask for the same ones again.
    numbers: Vec<u64>,
    sorted: Vec<i64>,
    points: Vec<(f64, f64)>,
    scratch: Scratch,
}

pub(super) struct Fitter<'a> {
    buffered: &'a Buffered<'a>,
    prefix: &'a [u8],
    base: u64,
    /// One past the last entry that has the prefix.
    reach: usize,
    /// A block that begins here or later takes all that is buffered.
    open_from: usize,
    /// The finest grid: cells are counted in `i64`s.
    least_shift: i32,
    /// How many blocks the last walk ended, each in the window of its number.
    walked: usize,
    room: &'a mut Room,
}

impl<'a> Fitter<'a> {
    pub fn new(buffered: &'a Buffered<'a>, room: &'a mut Room) -> Self {
        let reach = buffered.reach();
        let (first, last) = (buffered.keys[0], buffered.keys[reach - 1]);
        let prefix = &first[..common_prefix(first, last)];
        let base = match buffered.head.strip_prefix(prefix) {
            Some(rest) => embed(rest),
            None => embed(&first[prefix.len()..]),
        };
        room.windows.clear();
        room.numbers.clear();
        room.numbers.resize(reach, 0);
        let span = embed(&last[prefix.len()..]) - base;
        let least_shift = i32::from(span >> 62 != 0) * 2;
        let open_from = buffered.open_from();
        Self { buffered, prefix, base, reach, open_from, least_shift, walked: 0, room }
    }

    /// What follows the prefix in an entry's key, as a number.
    #[inline]
    fn number(&mut self, entry: usize) -> u64 {
        let number = &mut self.room.numbers[entry];
        if *number == 0 {
            let key = self.buffered.keys[entry];
            *number = embed(key.get(self.prefix.len()..).unwrap_or_default());
        }
        *number
    }

    /// The cheapest plan found; none where on each grid that was tried some window's keys all share their number, or where
    /// there are no inner separators.
    pub fn plan(mut self) -> Option<Chunk> {
        if !self.walk(None) || self.room.steps.is_empty() {
            return None;
        }
        // Where windows hold one gap, walks cannot follow a better line: fitting it again gains 0.1 %.
        let is_free = self.reach > self.room.steps.len() * SLACK as usize;
        let line = self.fit(None);
        let guess = self.estimate_grid(line);
        // A walk may meet a window whose keys all share their number where one on another grid does not.
        let first = self.try_grid(line, guess, None);
        let mut best = match first {
            None if is_free && guess < 63 => self.try_grid(line, guess + 1, None),
            found => found,
        }?;
        if is_free {
            let line = self.fit(Some(best.1));
            best = self.search_grid(line, best.1).unwrap_or(best);
        }
        let (course, cover) = best;
        Some(self.encode(course, cover))
    }

    /// Slope (value per block) and start (above the base) of the middle of the narrowest strip around
    /// the values of the last walk, or of the best one, those that its `cover` stores as exceptions
    /// left out.
    fn fit(&mut self, cover: Option<Cover>) -> (f64, f64) {
        let Room { steps, best_steps, points, scratch, .. } = &mut *self.room;
        let steps = if cover.is_some() { &*best_steps } else { &*steps };
        let kept = |step: &Step| cover.is_none_or(|cover| !is_exception(step, &cover));
        points.clear();
        for (i, step) in steps.iter().enumerate().filter(|(_, step)| kept(step)) {
            points.push(((i + 1) as f64, (step.value - self.base) as f64));
        }
        let slope = narrowest_slope(points, scratch).max(0.0);
        let above = points.iter().map(|(x, y)| y - slope * x);
        let low = above.clone().fold(f64::INFINITY, f64::min);
        let high = above.fold(f64::NEG_INFINITY, f64::max);
        (slope, low.midpoint(high))
    }

    /// The cheaper of two grids for one line, if it is cheaper than `bound`; its walk is kept. One is the best by the
    /// estimate, from the windows of the last walk, the other the next coarser one: where walks choose among several ends, they
    /// come nearer to the line than the estimate knows. (Finer ones: decision 30.)
    fn search_grid(&mut self, line: (f64, f64), bound: Cover) -> Option<(Course, Cover)> {
        let guess = self.estimate_grid(line);
        let best = self.try_grid(line, guess, Some(bound));
        if guess == 63 {
            return best;
        }
        let cheapest = best.map_or(bound, |(_, cover)| cover);
        self.try_grid(line, guess + 1, Some(cheapest)).or(best)
    }

    /// Walks along a line on a grid. If that is cheaper than `bound`, the walk is kept.
    fn try_grid(
        &mut self,
        line: (f64, f64),
        shift: i32,
        bound: Option<Cover>,
    ) -> Option<(Course, Cover)> {
        let shift = shift as u32;
        let cell = (1u64 << shift) as f64;
        let slope = (line.0 / cell * f64::from(1u32 << FRACTION)) as u64;
        let course = Course { shift, slope: slope.min(1 << 62), start: (line.1 / cell) as i64 };
        if !self.walk(Some(course)) || self.room.steps.is_empty() {
            return None;
        }
        let cover = self.cover(shift);
        if bound.is_some_and(|bound| bound.bits <= cover.bits) {
            return None;
        }
        let Room { steps, best_steps, .. } = &mut *self.room;
        std::mem::swap(steps, best_steps);
        Some((course, cover))
    }

    /// The grid that is cheapest by an estimate from the last walk's windows. A grid misses those
    /// windows whose ends agree in all bits above it, and the others lie from the line as far as they
    /// do, whatever the grid.
    fn estimate_grid(&self, (slope, start): (f64, f64)) -> i32 {
        let windows = &self.room.windows[..self.walked];
        let (mut lowest, mut highest) = (f64::INFINITY, f64::NEG_INFINITY);
        // How many windows a grid of `shift` is the coarsest of that hits them.
        let mut coarsest = [0u32; 64];
        for (window, i) in windows.iter().zip(1u32..) {
            let line = start + slope * f64::from(i);
            let (low, high) = (window.low - self.base, window.high - self.base);
            let above = line.max(low as f64).min(high as f64) - line;
            (lowest, highest) = (lowest.min(above), highest.max(above));
            coarsest[(bits_of(window.low ^ window.high) - 1) as usize] += 1;
        }
        let height = (highest - lowest) as u64;
        let span = windows.last().map_or(0, |window| window.high - self.base);
        let finest = coarsest.iter().position(|&count| count > 0).unwrap_or(0);
        let exception_bits = u64::from(bits_of(span >> finest));
        let (mut best, mut best_bits, mut misses) = (finest, u64::MAX, 0);
        for (shift, &count) in coarsest.iter().enumerate().skip(finest) {
            let width = bits_of((height >> shift).saturating_add(1 + misses));
            let bits = windows.len() as u64 * u64::from(width) + misses * exception_bits;
            if bits < best_bits {
                (best, best_bits) = (shift, bits);
            }
            misses += u64::from(count);
        }
        (best as i32).max(self.least_shift)
    }

    /// Where block `i` of a walk may end if it begins at `start`.
    #[inline]
    fn window(&mut self, i: usize, start: usize) -> Window {
        if let Some(known) = self.room.windows.get(i)
            && known.start == start
        {
            return *known;
        }
        let before = self.room.windows.get(i.wrapping_sub(1));
        let entries = before.map_or(0, |window| window.last - window.start);
        let last = self.buffered.last(start, start + entries);
        let first = self.buffered.first(start, last, SLACK);
        let (low, high) = (self.number(first - 1), self.number(last));
        let window = Window { start, first, last, low, high };
        match self.room.windows.get_mut(i) {
            Some(known) => *known = window,
            None => self.room.windows.push(window),
        }
        window
    }

    /// Ends blocks along a course, or in the middles of their windows. False if some window's keys
    /// share one number.
    fn walk(&mut self, course: Option<Course>) -> bool {
        let whole = self.take_steps(course);
        self.walked = self.room.steps.len();
        whole
    }

    fn take_steps(&mut self, course: Option<Course>) -> bool {
        self.room.steps.clear();
        let mut start = 0;
        while self.room.steps.len() + 1 < self.buffered.blocks && start < self.open_from {
            let window = self.window(self.room.steps.len(), start);
            let Window { low, high, .. } = window;
            if low == high {
                return false;
            }
            let mut step = Step { end: 0, value: 0, residual: 0, miss: false };
            match course {
                None => step.value = low + (high - low).div_ceil(2),
                Some(Course { shift, slope, start }) => {
                    let origin = self.base >> shift;
                    let bottom = ((low >> shift) + 1 - origin) as i64;
                    let top = (high >> shift).wrapping_sub(origin) as i64;
                    let rise = line(slope, self.room.steps.len() as u64 + 1) as i64;
                    if bottom <= top {
                        let cell = start.saturating_add(rise).clamp(bottom, top);
                        step.value = (cell as u64 + origin) << shift;
                        step.residual = cell - rise;
                    } else {
                        step.value = roundest(low, high);
                        step.miss = true;
                    }
                }
            }
            start = self.end(&window, step.value);
            step.end = start as u32;
            self.room.steps.push(step);
        }
        // Without what follows, the open block has no upper separator: the block before it is the
        // chunk's last.
        if start >= self.open_from && !self.buffered.end_of_table {
            self.room.steps.pop();
        }
        true
    }

    /// The gap in a window that a number lies in.
    #[inline]
    fn end(&mut self, window: &Window, value: u64) -> usize {
        let (mut low, mut high) = (window.first, window.last);
        // Which way it goes cannot be predicted: many are halved, few counted.
        while high - low > FEW {
            let middle = low.midpoint(high);
            let below = self.number(middle) < value;
            low = select_unpredictable(below, middle + 1, low);
            high = select_unpredictable(below, high, middle);
        }
        low + (low..high).filter(|&gap| self.number(gap) < value).count()
    }

    /// The cheapest cover of the walk's residuals. Bits count codes and exceptions.
    fn cover(&mut self, shift: u32) -> Cover {
        let Room { steps, sorted, .. } = &mut *self.room;
        sorted.clear();
        sorted.extend(steps.iter().filter(|s| !s.miss).map(|s| s.residual));
        sort(sorted);
        let misses = steps.len() - sorted.len();
        let missed = steps.iter().filter(|step| step.miss);
        let finest = missed.map(|step| step.value.trailing_zeros()).min().unwrap_or(63).min(shift);
        let span = steps.last().map_or(0, |step| step.value) - self.base;
        let exception_bits = u64::from(bits_of(span >> finest));
        let mut best: Option<Cover> = None;
        for outliers in 0..=sorted.len().min(MOST_OUTLIERS) {
            let exceptions = misses + outliers;
            if best.is_some_and(|cover| cover.bits <= exceptions as u64 * exception_bits) {
                break;
            }
            let kept = sorted.len() - outliers;
            // Codes needed: one for each cell of the strip, one for each exception.
            let (mut height, mut low) = (0, 0);
            if kept > 0 {
                height = u64::MAX;
                for (&bottom, &top) in sorted.iter().zip(&sorted[kept - 1..]) {
                    // Which strip is the narrowest cannot be predicted.
                    let between = top.abs_diff(bottom);
                    low = select_unpredictable(between < height, bottom, low);
                    height = height.min(between);
                }
                height = height.saturating_add(1);
            }
            let codes = height.saturating_add(exceptions as u64);
            let width = bits_of(codes.saturating_sub(1));
            let bits = steps.len() as u64 * u64::from(width)
                + exceptions as u64 * exception_bits
                + if exceptions > 0 { 24 } else { 0 };
            if best.is_none_or(|cover| bits < cover.bits) {
                best = Some(Cover { low, width, exceptions, bits });
            }
        }
        best.unwrap_or(Cover { low: 0, width: 0, exceptions: 0, bits: u64::MAX })
    }

    /// The chunk of the cheapest walk.
    fn encode(&self, course: Course, cover: Cover) -> Chunk {
        let steps = &self.room.best_steps;
        let excepted: Vec<u64> =
            steps.iter().filter(|step| is_exception(step, &cover)).map(|step| step.value).collect();
        debug_assert!(excepted.len() <= cover.exceptions, "the walk repeats itself");
        let finest = excepted.iter().map(|value| value.trailing_zeros()).min().unwrap_or(0);
        let finest = finest.min(63);
        let above = |value: u64| (value >> finest) - (self.base >> finest);
        let exception_width = excepted.iter().map(|&v| bits_of(above(v))).max().unwrap_or(0);
        let code_bytes = (steps.len() * cover.width as usize).div_ceil(8);
        let mut body = Vec::with_capacity(self.prefix.len() + HEADER_BYTES + code_bytes);
        let met = excepted.len();
        let rest = Chunk::begin(&mut body, Kind::Numeric, self.buffered.head, self.prefix, met > 0);
        let mut writer = Writer::new(&mut body);
        if rest > 0 {
            writer.u64(self.base);
        }
        writer.u8(course.shift as u8);
        writer.u8(cover.width as u8);
        writer.varint(course.slope);
        writer.signed_varint(cover.low);
        if met > 0 {
            writer.u8(met as u8);
            writer.u8(finest as u8);
            writer.u8(exception_width as u8);
        }
        let mut bits = BitWriter::behind(body);
        let mut code_of_exception = mask(cover.width);
        for step in steps {
            let mut code = step.residual.wrapping_sub(cover.low) as u64;
            if is_exception(step, &cover) {
                code = code_of_exception;
                code_of_exception = code_of_exception.wrapping_sub(1);
            }
            bits.push(code, cover.width);
        }
        for &value in &excepted {
            bits.push(above(value), exception_width);
        }
        let cut =
            |step: &Step| Cut { end: step.end as usize, separator: self.bytes_of(step.value) };
        let mut cuts = Vec::with_capacity(steps.len() + 1);
        cuts.extend(steps.iter().map(cut));
        Chunk::finish(self.buffered, cuts, SLACK, bits.finish())
    }

    /// The byte string that a number stands for.
    fn bytes_of(&self, number: u64) -> Separator {
        let bytes = number.to_be_bytes();
        Separator::of(self.prefix, &bytes[..8 - number.trailing_zeros() as usize / 8])
    }
}

/// Whether a step's separator is stored by itself.
fn is_exception(step: &Step, cover: &Cover) -> bool {
    let greatest = mask(cover.width).checked_sub(cover.exceptions as u64);
    let code = step.residual.abs_diff(cover.low);
    step.miss || step.residual < cover.low || greatest.is_none_or(|greatest| code > greatest)
}

/// Sorts residuals, at most one for each block of a chunk. They mostly lie near each other: then
/// they are counted.
pub(super) fn sort(residuals: &mut [i64]) {
    const MOST: usize = 256;
    let (Some(&low), Some(&high)) = (residuals.iter().min(), residuals.iter().max()) else {
        return;
    };
    if high.abs_diff(low) >= MOST as u64 {
        return residuals.sort_unstable();
    }
    let mut ends = [0u8; MOST];
    for &residual in &*residuals {
        ends[(residual - low) as usize] += 1;
    }
    let mut end = 0;
    for count in &mut ends[..=(high - low) as usize] {
        end += *count;
        *count = end;
    }
    let unsorted: [i64; MOST_BLOCKS] = std::array::from_fn(|i| *residuals.get(i).unwrap_or(&low));
    for &residual in &unsorted[..residuals.len()] {
        let end = &mut ends[(residual - low) as usize];
        *end -= 1;
        residuals[usize::from(*end)] = residual;
    }
}
