// The source of delay.ptx: a kernel that only takes time. It is launched with one block of one thread, before an
// operation of the program and on that operation's stream.
//
// delay.ptx has the same instructions by hand, for the oldest target that current drivers compile, so that one text
// serves every GPU. `ptxas -arch=sm_75 delay.ptx` checks it.
extern "C" __global__ void millpond_delay(unsigned long long nanoseconds) {
    unsigned long long start, now;
    long long first = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        // The second condition ends it should the timer stand still: no GPU has four cycles in a nanosecond.
    } while (now - start < nanoseconds && clock64() - first < 4 * (long long)nanoseconds);
}
