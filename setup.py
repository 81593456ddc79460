"""The part of the build that pyproject.toml has no words for: kernels in C for the losses of networks."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "gaussify.nn._kernels",
            ["src/gaussify/nn/_kernels.c"],
            depends=["src/gaussify/nn/_kernels.h", "src/gaussify/nn/_operation.h"],
            extra_compile_args=["-O3", "-fopenmp-simd", "-fno-trapping-math", "-fwrapv"],
            py_limited_api=True,
            optional=True,  # without a compiler, losses are computed by torch's operations
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
