{{/*
How Prometheus scrapes the controller manager. The argument is the values of a monitor.
*/}}
{{- define "underlay.scrape.ccm" -}}
- port: https
  path: /metrics
  interval: {{ .interval }}
  scheme: https
  tlsConfig:
    # The program's certificate is self-signed.
    insecureSkipVerify: true
  # The program authenticates clients by the API server.
  authorization:
    type: Bearer
    credentials:
      name: {{ .tokenSecret.name }}
      key: {{ .tokenSecret.key }}
{{- end }}

{{/*
How Prometheus scrapes an agent. The argument is the values of a monitor.
*/}}
{{- define "underlay.scrape.agent" -}}
- port: http
  path: /metrics
  interval: {{ .interval }}
  relabelings:
    # The pod's name doesn't identify the node.
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
{{- end }}

{{/*
The job label that a PodMonitor would set, which alerts and dashboards select. The argument
is a program's name.
*/}}
{{- define "underlay.scrape.job" -}}
- targetLabel: job
  replacement: kube-system/{{ . }}
{{- end }}

{{/*
Name and labels of a monitor. The argument is a list: the root, the program's name, the
values of the monitor.
*/}}
{{- define "underlay.scrape.metadata" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $monitor := index . 2 -}}
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    app.kubernetes.io/name: {{ $name }}
    app.kubernetes.io/part-of: underlay
    {{- with $monitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
