FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.11-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels oncelog && rm -rf /wheels \
    && useradd --system --create-home --home-dir /var/lib/oncelog oncelog \
    && install -d -o oncelog -g oncelog /var/lib/oncelog/data
USER oncelog
VOLUME /var/lib/oncelog/data
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s CMD ["oncelog", "topic", "list", "--bootstrap", "127.0.0.1:9092"]
ENTRYPOINT ["oncelog"]
CMD ["serve", "--data-dir", "/var/lib/oncelog/data", "--listen", "0.0.0.0:9092"]
