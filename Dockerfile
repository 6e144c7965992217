# A service for one run: fastgcn serve. See docs/serving.md.
#   docker build --build-arg TORCH_INDEX=... -t fastgcn .
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# The address of torch's CPU builds (pytorch.org, "Get started"): without it, torch brings 6 GB of CUDA.
ARG TORCH_INDEX=""
RUN python -m venv /app \
 && /app/bin/pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
    'torch>=2.4' '.[serve]'

FROM python:3.12-slim
COPY --from=build /app /app
# Nobody special runs it. Kernels are compiled once, into a folder that this user may write.
RUN useradd --create-home --uid 10001 fastgcn
USER fastgcn
ENV PATH=/app/bin:$PATH NUMBA_CACHE_DIR=/home/fastgcn/.cache/numba PYTHONUNBUFFERED=1
WORKDIR /home/fastgcn
EXPOSE 8000
HEALTHCHECK --start-period=120s --interval=30s --timeout=5s CMD \
    python -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=4)"
# The run and the store are mounted, not copied: see compose.yaml. A token is needed (FASTGCN_TOKEN).
ENTRYPOINT ["fastgcn", "serve"]
CMD ["/runs/current", "--runs", "/runs", "--host", "0.0.0.0"]
