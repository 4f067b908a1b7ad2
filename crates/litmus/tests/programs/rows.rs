//! Programs of several devices, and of several processes, that once got a wrong verdict, as in `verdicts.rs`.

pub(crate) const DEVICES: &[(&str, &str)] = &[
    (
        "Memory of a capture has the access that its pool granted when it was allocated, no later one",
        "stream s nonblocking / stream u nonblocking on 1 / pool p / capture s as g / a = alloc s 64 from p / \
         grant p to 1 / b = alloc s 64 from p / record e s / wait u e / read u a !! no-access / write u b / \
         record f u / wait s f / free s a / free s b / end capture s",
    ),
    (
        "Memory of a capture may be read where its pool granted that when it was allocated, and more since",
        "stream s nonblocking / stream u nonblocking on 1 / pool p / grant p to 1 read / capture s as g / \
         a = alloc s 64 from p / grant p to 1 / record e s / wait u e / read u a / write u a !! no-access / \
         record f u / wait s f / free s a / end capture s",
    ),
    (
        "Memory of a capture keeps the access that its pool granted when it was allocated",
        "stream s nonblocking / stream u nonblocking on 1 / pool p / grant p to 1 / capture s as g / \
         a = alloc s 64 from p / revoke p from 1 / record e s / wait u e / write u a / record f u / wait s f / \
         free s a / end capture s",
    ),
    (
        "What a launch leaves has the access that its pool granted when it was captured, no later one",
        "stream s nonblocking / stream u nonblocking on 1 / pool p / capture s as g / a = alloc s 64 from p / \
         b = alloc s 64 / write s a / end capture s / grant p to 1 / x = instantiate g / launch x s / record e s / \
         wait u e / write u a !! no-access / c = take b from x / read u c !! no-access / free u a / free u c",
    ),
    (
        "What a launch leaves has the access that its pool granted, for nodes of other graphs, too",
        "stream s nonblocking / stream u nonblocking on 1 / pool p / grant p to 1 read / capture s as g / a = alloc \
         s 64 from p / end capture s / revoke p from 1 / x = instantiate g / launch x s / record e s / wait u e / \
         read u a / graph k / node n in k: write a / z = instantiate k / launch z u !! no-access / free u a",
    ),
];

pub(crate) const PROCESSES: &[(&str, &str)] = &[
    (
        "What the exporting host knows goes with the ticket",
        "process P / pool p shared / stream s / a = alloc s 64 from p / b = alloc s 64 from p / synchronize s / \
         export a as k / c = alloc s 64 from p / export c as l / P: stream q / P: e = import k / P: write q e / \
         P: d = import l / P: write q d !! use-before-alloc / P: synchronize q / P: free now e / P: free now d / \
         P: tell main / free s a / free s c / drop b",
    ),
    (
        "An import that its process drops is held until the owner knows",
        "process P / pool p shared / stream s / a = alloc s 64 from p / export a as k / P: b = import k / P: drop b / \
         free s a !! free-before-use",
    ),
    (
        "Where the owner was told, or drops as well, the hold is over",
        "process P / pool p shared / stream s / a = alloc s 64 from p / export a as k / P: b = import k / P: drop b / \
         P: tell main / free s a / c = alloc s 64 from p / export c as l / P: d = import l / P: drop d / drop c",
    ),
];
