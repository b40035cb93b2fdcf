{{/*
How Prometheus reads the controller manager. Takes the values of a monitor.
*/}}
{{- define "underlay.scrape.ccm" -}}
- port: https
  path: /metrics
  interval: {{ .interval }}
  scheme: https
  tlsConfig:
    # The program makes its certificate at start, for nobody in particular.
    insecureSkipVerify: true
  # Who reads is asked by the program, and answered by the API server.
  authorization:
    type: Bearer
    credentials:
      name: {{ .tokenSecret.name }}
      key: {{ .tokenSecret.key }}
{{- end }}

{{/*
How Prometheus reads an agent. Takes the values of a monitor.
*/}}
{{- define "underlay.scrape.agent" -}}
- port: http
  path: /metrics
  interval: {{ .interval }}
  relabelings:
    # Which machine it is about; a pod's name says nothing.
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
{{- end }}

{{/*
The job under which a PodMonitor would have it, so that alerts and dashboards find it.
Takes a program's name.
*/}}
{{- define "underlay.scrape.job" -}}
- targetLabel: job
  replacement: kube-system/{{ . }}
{{- end }}

{{/*
Name and labels of a monitor. Takes a list: the root, the program's name, the values of
the monitor.
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
