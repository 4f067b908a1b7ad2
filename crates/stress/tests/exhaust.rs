//! Every program of four operations. `millpond-stress exhaust --ops 5` runs those of five.

#[test]
fn every_program_of_four_operations_is_right() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let programs = millpond_stress::exhaust::exhaust(4, threads).unwrap_or_else(|found| panic!("{found}"));
    assert!(programs > 1_000_000, "only {programs} programs: something leaves out too much");
}
