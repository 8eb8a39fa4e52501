//! What the processor is told beforehand.

/// A processor's cache line, bytes: of all that this is built for.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Has the processor fetch `bytes` into its caches, where it can be asked to, for somebody who is about to read
/// them. Costs an instruction for each line; nobody waits.
#[inline]
#[allow(unsafe_code)]
pub fn fetch_ahead(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint reads nothing that anybody sees and faults nowhere; the address is a slice's.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}
