# docker build .                      the broker
# docker build --target pipeline .    Spark for `oncelog pipeline`, with this oncelog in it: master, workers and drivers
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM build AS build-pipeline
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[pipeline,demo]'

FROM python:3.11-slim AS pipeline
RUN apt-get update && apt-get install -y --no-install-recommends default-jre-headless procps && rm -rf /var/lib/apt/lists/*
COPY --from=build-pipeline /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels 'oncelog[pipeline,demo]' && rm -rf /wheels \
    && useradd --system --create-home --home-dir /var/lib/oncelog oncelog \
    && install -d -o oncelog -g oncelog /var/lib/oncelog/pipeline
USER oncelog
WORKDIR /var/lib/oncelog/pipeline
VOLUME /var/lib/oncelog/pipeline
ENV PYSPARK_PYTHON=/usr/local/bin/python
CMD ["oncelog", "pipeline", "--help"]

FROM python:3.11-slim AS broker
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels oncelog && rm -rf /wheels \
    && useradd --system --create-home --home-dir /var/lib/oncelog oncelog \
    && install -d -o oncelog -g oncelog /var/lib/oncelog/data
USER oncelog
VOLUME /var/lib/oncelog/data
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s CMD ["oncelog", "health", "--bootstrap", "127.0.0.1:9092"]
ENTRYPOINT ["oncelog"]
CMD ["serve", "--data-dir", "/var/lib/oncelog/data", "--listen", "0.0.0.0:9092"]
