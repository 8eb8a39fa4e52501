//! What the processor is told beforehand.

/// A processor's cache line, bytes: of all that this is built for.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Has the processor fetch `items` into its caches, where it can be asked to, for somebody who is about to read
/// them. Costs an instruction for each line; nobody waits.
#[inline]
#[allow(unsafe_code)]
pub fn fetch_ahead<T>(items: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..size_of_val(items)).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = items.as_ptr().wrapping_byte_add(offset);
        // SAFETY: a hint reads nothing that anybody sees and faults nowhere; the address is within a slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = items;
}
