"""What a correct result is, and cases to check. The tests, the benchmarks and `python -m torch_addmm_tc` share it."""
