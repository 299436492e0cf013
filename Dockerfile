# agentd in a container, as a user of its own.
#
#   docker build -t agentd .
#   docker run -d --name agentd --init=false -e AGENTD__TIMEZONE=Europe/Berlin -v agentd-state:/var/lib/agentd agentd
#   docker exec agentd agentctl list
#
# It brings the shipped config, policy and routines. For your own, make a folder of them that belongs to its user, and add
# `-v ./mine:/etc/agentd:ro` to the run:
#
#   docker run --rm --user 0 --entrypoint sh -v ./mine:/mine agentd -c "agentd init /mine && chown -R agentd: /mine"
#
# Tools run in the sandbox `bubblewrap` where the container may make user namespaces; `agentctl doctor` says which it is.

FROM python:3.13-slim

# what the shipped report looks with, and what tools are confined by
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap git procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home --home-dir /var/lib/agentd agentd \
    && install -d -o agentd -g agentd -m 0700 /run/agentd /var/lib/agentd/workspace

# EXTRAS=[postgres] for several machines on one database: compose.yml; [notify] for chats and phones
ARG EXTRAS=

WORKDIR /opt/agentd
COPY . .
RUN pip install --no-cache-dir -c constraints.txt .$EXTRAS && agentd init /etc/agentd && chown -R agentd: /etc/agentd

USER agentd
ENV STATE_DIRECTORY=/var/lib/agentd RUNTIME_DIRECTORY=/run/agentd
VOLUME /var/lib/agentd
# as process 1 it reaps; docker stop gives it [daemon] grace and more
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=60s --timeout=5s --start-period=10s CMD ["agentctl", "status"]
ENTRYPOINT ["agentd", "--config", "/etc/agentd/config.toml"]
