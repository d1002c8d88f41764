# The project and what it needs, for the pods of kubernetes/study.yaml; it runs as user 1000, not as root.
#
#   docker build -t glue-exit-study:0.1.0-cpu .
#   docker build -t glue-exit-study:0.1.0-cuda --build-arg TORCH=cu130 .
#
# BASE: a Debian or Ubuntu with Python 3.11 or newer, its venv and bash.
# TORCH: a folder of https://download.pytorch.org/whl, `cpu` or that of a CUDA version.
ARG BASE=python:3.11.13-slim-bookworm
FROM ${BASE}
ARG TORCH=cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/${TORCH}

# KubeRay asks a pod for its health with wget.
RUN command -v wget > /dev/null || \
    (apt-get update && apt-get install -y --no-install-recommends wget && rm -rf /var/lib/apt/lists/*)
# A login shell would forget PATH.
RUN useradd --uid 1000 --create-home --shell /bin/bash study && \
    echo 'export PATH=/opt/study/bin:$PATH' > /etc/profile.d/study.sh

ENV PATH=/opt/study/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 RAY_USAGE_STATS_ENABLED=0
WORKDIR /home/study/glue-exit-study
# What the project needs comes before its code: after a change of code the packages are neither built nor pushed again.
COPY LICENSE README.md constraints.txt pyproject.toml ./
# Torch comes from its index or not at all: beside another index pip would silently take a build of several gigabytes.
RUN python3 -m venv /opt/study && \
    pip install --no-cache-dir --no-compile --no-deps --index-url ${TORCH_INDEX} -c constraints.txt torch && \
    pip install --no-cache-dir --no-compile -c constraints.txt -e '.[cluster]'
COPY analysis analysis
COPY search_spaces search_spaces
COPY study study
COPY trainables trainables
RUN pip install --no-cache-dir --no-deps -e .

USER 1000
CMD ["python", "-m", "study.launch", "--help"]
