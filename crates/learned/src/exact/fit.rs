//! Plans numeric chunks: chooses block ends and a line, so that few bits name the separators.
//!
//! 1. A first walk ends every block in the middle of its window and gives the narrowest strip's line.
//! 2. For a grid, a walk along the line ends each block where the window's grid value lies nearest
//!    to the line: the blocks' sizes steer the sequence. A window without a grid value is a miss.
//! 3. The residuals' width is that for which width and exceptions (misses, and what lies too far
//!    out) cost least. Grids are tried from a guess up and down while that helps.
//! 4. Where blocks have entries enough to steer with, the line is fitted again to what the best walk
//!    covered, and 2 to 3 repeated.

use super::numeric::{FRACTION, line};
use super::windows::{Buffered, roundest};
use super::{Chunk, Kind, common_prefix, embed};
use crate::bytes::Writer;
use crate::monotone::bits::{BitWriter, bits_of};
use crate::monotone::strip::{Scratch, narrowest_slope};

/// A block may end in the last tenth of its size.
const SLACK: u64 = 10;
/// Outliers beyond this many are not looked for.
const MOST_OUTLIERS: usize = 16;
/// How often the line is fitted.
const ROUNDS: usize = 3;

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

pub(super) struct Fitter<'a> {
    buffered: &'a Buffered<'a>,
    firsts: Vec<u32>,
    prefix: &'a [u8],
    numbers: Vec<u64>,
    base: u64,
    steps: Vec<Step>,
    sorted: Vec<i64>,
    points: Vec<(f64, f64)>,
    scratch: Scratch,
}

impl<'a> Fitter<'a> {
    pub fn new(buffered: &'a Buffered<'a>) -> Self {
        let reach = buffered.reach();
        let (first, last) = (buffered.keys[0], buffered.keys[reach - 1]);
        let prefix = &first[..common_prefix(first, last)];
        let tail = |key: &&[u8]| embed(key.get(prefix.len()..).unwrap_or_default());
        let numbers: Vec<u64> = buffered.keys[..reach].iter().map(tail).collect();
        let base = match buffered.head.strip_prefix(prefix) {
            Some(rest) => embed(rest),
            None => numbers[0],
        };
        Self {
            buffered,
            firsts: buffered.firsts(SLACK),
            prefix,
            numbers,
            base,
            steps: Vec::new(),
            sorted: Vec::new(),
            points: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// The cheapest plan found; none where some window's keys all share their number, or where there
    /// are no inner separators.
    pub fn plan(mut self) -> Option<Chunk> {
        if !self.walk(None) || self.steps.is_empty() {
            return None;
        }
        let mut widths: Vec<u32> = self.sorted.iter().map(|&bits| bits as u32).collect();
        let twentieth = widths.len() / 20;
        let guess = *widths.select_nth_unstable(twentieth).1;
        let all: Vec<_> = self.steps.iter().map(|step| Some(step.value)).collect();
        let mut line = self.fit(&all);
        let mut best: Option<(Course, Cover)> = None;
        // Where windows hold one gap, walks cannot follow a better line: a second round gains 0.1 %.
        let is_free = self.numbers.len() > self.steps.len() * SLACK as usize;
        for _ in 0..ROUNDS {
            let from = best.map_or(guess, |(course, _)| course.shift);
            let Some(found) = self.search_grid(line, from) else { break };
            if best.is_some_and(|(_, cover)| cover.bits <= found.1.bits) {
                break;
            }
            best = Some(found);
            if !is_free {
                break;
            }
            let (course, cover) = found;
            self.walk(Some(course));
            let kept = |step: &Step| (!self.is_exception(step, &cover)).then_some(step.value);
            let covered: Vec<_> = self.steps.iter().map(kept).collect();
            line = self.fit(&covered);
        }
        let (course, cover) = best?;
        self.walk(Some(course));
        Some(self.encode(course, cover))
    }

    fn is_exception(&self, step: &Step, cover: &Cover) -> bool {
        let room = (1i128 << cover.width) - cover.exceptions as i128;
        let code = i128::from(step.residual) - i128::from(cover.low);
        step.miss || !(0..room).contains(&code)
    }

    /// Slope (value per block) and start (above the base) of the middle of the narrowest strip around
    /// the values that are there.
    fn fit(&mut self, values: &[Option<u64>]) -> (f64, f64) {
        self.points.clear();
        for (i, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            self.points.push(((i + 1) as f64, (value - self.base) as f64));
        }
        let slope = narrowest_slope(&self.points, &mut self.scratch).max(0.0);
        let above = self.points.iter().map(|(x, y)| y - slope * x);
        let low = above.clone().fold(f64::INFINITY, f64::min);
        let high = above.fold(f64::NEG_INFINITY, f64::max);
        (slope, low.midpoint(high))
    }

    /// The cheapest grid near `from`, for one line.
    fn search_grid(&mut self, line: (f64, f64), from: u32) -> Option<(Course, Cover)> {
        let mut best: Option<(Course, Cover)> = None;
        for direction in [-1i32, 1] {
            let mut shift = from as i32 + direction.max(0);
            while (self.least_shift()..64).contains(&shift) {
                let Some(found) = self.try_grid(line, shift as u32) else { break };
                if best.is_some_and(|(_, cover)| cover.bits <= found.1.bits) {
                    break;
                }
                best = Some(found);
                shift += direction;
            }
        }
        best
    }

    /// Cells are counted in `i64`s.
    fn least_shift(&self) -> i32 {
        let span = self.numbers.last().map_or(0, |last| last - self.base);
        i32::from(span >> 62 != 0) * 2
    }

    fn try_grid(&mut self, line: (f64, f64), shift: u32) -> Option<(Course, Cover)> {
        let cell = (1u64 << shift) as f64;
        let slope = (line.0 / cell * f64::from(1u32 << FRACTION)) as u64;
        let course = Course { shift, slope: slope.min(1 << 62), start: (line.1 / cell) as i64 };
        if !self.walk(Some(course)) || self.steps.is_empty() {
            return None;
        }
        Some((course, self.cover(shift)))
    }

    /// Ends blocks along a course, or in the middles of their windows, leaving the logarithms of the
    /// windows' widths in `sorted`. False if some window's keys share one number.
    fn walk(&mut self, course: Option<Course>) -> bool {
        self.steps.clear();
        self.sorted.clear();
        let mut start = 0;
        while self.steps.len() + 1 < self.buffered.blocks && !self.buffered.is_open(start) {
            let (first, last) = (self.firsts[start] as usize, self.buffered.last[start] as usize);
            let (low, high) = (self.numbers[first - 1], self.numbers[last]);
            if low == high {
                return false;
            }
            let mut step = Step { end: 0, value: 0, residual: 0, miss: false };
            match course {
                None => {
                    step.value = low + (high - low).div_ceil(2);
                    self.sorted.push(i64::from(bits_of(high - low) - 1));
                }
                Some(Course { shift, slope, start }) => {
                    let origin = self.base >> shift;
                    let bottom = ((low >> shift) + 1 - origin) as i64;
                    let top = (high >> shift).wrapping_sub(origin) as i64;
                    let rise = line(slope, self.steps.len() as u64 + 1) as i64;
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
            let ends = &self.numbers[first..=last];
            start = first + ends.partition_point(|&number| number < step.value);
            step.end = start as u32;
            self.steps.push(step);
        }
        // Without what follows, the open block has no upper separator: the block before it is the
        // chunk's last.
        if self.buffered.is_open(start) && !self.buffered.end_of_table {
            self.steps.pop();
            self.sorted.pop();
        }
        true
    }

    /// The cheapest cover of the walk's residuals. Bits count codes and exceptions.
    fn cover(&mut self, shift: u32) -> Cover {
        self.sorted.clear();
        self.sorted.extend(self.steps.iter().filter(|s| !s.miss).map(|s| s.residual));
        self.sorted.sort_unstable();
        let misses = self.steps.len() - self.sorted.len();
        let missed = self.steps.iter().filter(|step| step.miss);
        let finest = missed.map(|step| step.value.trailing_zeros()).min().unwrap_or(63).min(shift);
        let span = self.steps.last().map_or(0, |step| step.value) - self.base;
        let exception_bits = u64::from(bits_of(span >> finest));
        let mut best: Option<Cover> = None;
        for outliers in 0..=self.sorted.len().min(MOST_OUTLIERS) {
            let exceptions = misses + outliers;
            if best.is_some_and(|cover| cover.bits <= exceptions as u64 * exception_bits) {
                break;
            }
            let kept = self.sorted.len() - outliers;
            // Codes needed: one for each cell of the strip, one for each exception.
            let strips = self.sorted.windows(kept.max(1));
            let narrowest = strips.map(|w| (w[w.len() - 1].abs_diff(w[0]), w[0])).min();
            let (height, low) = match narrowest {
                Some((height, low)) if kept > 0 => (height.saturating_add(1), low),
                _ => (0, 0),
            };
            let codes = height.saturating_add(exceptions as u64);
            let width = bits_of(codes.saturating_sub(1));
            let bits = self.steps.len() as u64 * u64::from(width)
                + exceptions as u64 * exception_bits
                + if exceptions > 0 { 24 } else { 0 };
            if best.is_none_or(|cover| bits < cover.bits) {
                best = Some(Cover { low, width, exceptions, bits });
            }
        }
        best.unwrap_or(Cover { low: 0, width: 0, exceptions: 0, bits: u64::MAX })
    }

    fn encode(&self, course: Course, cover: Cover) -> Chunk {
        let excepted: Vec<u64> = self
            .steps
            .iter()
            .filter(|step| self.is_exception(step, &cover))
            .map(|step| step.value)
            .collect();
        debug_assert!(excepted.len() <= cover.exceptions, "the walk repeats itself");
        let finest = excepted.iter().map(|value| value.trailing_zeros()).min().unwrap_or(0);
        let finest = finest.min(63);
        let above = |value: u64| (value >> finest) - (self.base >> finest);
        let exception_width = excepted.iter().map(|&v| bits_of(above(v))).max().unwrap_or(0);
        let mut bits = BitWriter::default();
        let mut met = 0;
        for step in &self.steps {
            let code = if self.is_exception(step, &cover) {
                met += 1;
                crate::monotone::bits::mask(cover.width) - (met - 1)
            } else {
                (step.residual - cover.low) as u64
            };
            bits.push(code, cover.width);
        }
        for &value in &excepted {
            bits.push(above(value), exception_width);
        }
        let mut body = Vec::new();
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
        body.extend(bits.finish());
        let inner = self.steps.iter().map(|step| (step.end as usize, self.bytes_of(step.value)));
        Chunk::finish(self.buffered, inner.collect(), &self.firsts, body)
    }

    /// The byte string that a number stands for.
    fn bytes_of(&self, number: u64) -> Vec<u8> {
        [self.prefix, super::trimmed(&number.to_be_bytes())].concat()
    }
}
