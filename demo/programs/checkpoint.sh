# A simulation: compute, write a checkpoint in HDF5, keep the last two; at the end, restart from the last.
/usr/bin/python3 - <<'PYTHON'
import os, time
import h5py, numpy
state = numpy.random.default_rng(7).random((8, 1 << 20))
for step in range(6):
    time.sleep(0.5)  # the computation
    state = state * 0.5 + step
    with h5py.File(f"checkpoint.{step}.h5", "w") as file:
        for name, field in zip("tuvwpqrs", state):
            file.create_dataset(name, data=field)
        file.attrs["step"] = step
        file.flush()
    if step > 1:
        os.unlink(f"checkpoint.{step - 2}.h5")
with h5py.File("checkpoint.5.h5") as file:
    assert all((file[name][...] == field).all() for name, field in zip("tuvwpqrs", state))
PYTHON
