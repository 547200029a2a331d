# E3, the ComfyUI Agent. docs/containers.md says more.
#   docker build -t animapp/e3 .
#   docker run -e E3_COMFYUI__API_BASE_URL=http://gpu1:8188 -v e3-workspace:/workspace animapp/e3

FROM python:3.13.9-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/e3
WORKDIR /build
COPY LICENSE README.md constraints.txt pyproject.toml ./
COPY infra/comfyui/samples infra/comfyui/samples
COPY src src
RUN /opt/e3/bin/pip install --constraint constraints.txt ".[postgres,objects,notify]"


FROM python:3.13.9-slim-bookworm
ENV PATH=/opt/e3/bin:$PATH \
    PYTHONUNBUFFERED=1
RUN useradd --uid 1000 --create-home --shell /usr/sbin/nologin e3 \
 && install --directory --owner e3 --group e3 /workspace
COPY --from=build /opt/e3 /opt/e3
USER 1000
WORKDIR /workspace
# A new volume begins as this workspace; one that has files keeps them.
RUN ["e3", "init", "/workspace"]
VOLUME /workspace
# Configuration and database can be read. A ComfyUI that is away is no illness of the agent: it waits for it.
HEALTHCHECK --interval=60s --timeout=20s --start-period=30s --retries=3 CMD ["e3", "queue", "ls", "--limit", "1", "--json"]
ENTRYPOINT ["e3"]
CMD ["run"]
