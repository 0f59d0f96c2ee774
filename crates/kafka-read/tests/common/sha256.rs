//! SHA-256, to compare long golden values without a crate for it.

/// The digest in hex.
pub fn hex(data: &[u8]) -> String {
    let primes: Vec<u64> =
        (2u64..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0)).take(64).collect();
    // The first 32 bits of the fractions of square and cube roots of primes, by integer roots.
    let root = |n: u64, power: u32| -> u32 {
        let scaled = u128::from(n) << (32 * power);
        let (mut low, mut high) = (0u128, 1u128 << 40);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if middle.pow(power) <= scaled { low = middle } else { high = middle }
        }
        low as u32
    };
    let mut state: Vec<u32> = primes.iter().take(8).map(|n| root(*n, 2)).collect();
    let keys: Vec<u32> = primes.iter().map(|n| root(*n, 3)).collect();
    let mut padded = data.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(data.len() as u64 * 8).to_be_bytes());
    let mut words = [0u32; 64];
    for block in padded.chunks(64) {
        for (word, bytes) in words.iter_mut().zip(block.chunks(4)) {
            *word = u32::from_be_bytes(bytes.try_into().unwrap());
        }
        for i in 16..64 {
            let (a, b) = (words[i - 15], words[i - 2]);
            let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
            let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
            words[i] = words[i - 16].wrapping_add(s0).wrapping_add(words[i - 7]).wrapping_add(s1);
        }
        let mut s: [u32; 8] = state.as_slice().try_into().unwrap();
        for i in 0..64 {
            let s1 = s[4].rotate_right(6) ^ s[4].rotate_right(11) ^ s[4].rotate_right(25);
            let choice = (s[4] & s[5]) ^ (!s[4] & s[6]);
            let t1 = s[7].wrapping_add(s1).wrapping_add(choice).wrapping_add(keys[i]).wrapping_add(words[i]);
            let s0 = s[0].rotate_right(2) ^ s[0].rotate_right(13) ^ s[0].rotate_right(22);
            let majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
            s = [
                t1.wrapping_add(s0.wrapping_add(majority)),
                s[0],
                s[1],
                s[2],
                s[3].wrapping_add(t1),
                s[4],
                s[5],
                s[6],
            ];
        }
        for (total, part) in state.iter_mut().zip(s) {
            *total = total.wrapping_add(part);
        }
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}
