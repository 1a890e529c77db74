{{- define "redlatch.name" -}}
{{- if contains "redlatch" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-redlatch" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "redlatch.selector" -}}
app.kubernetes.io/name: redlatch
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "redlatch.labels" -}}
{{ include "redlatch.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* What both kinds of pods have, but their containers. */}}
{{- define "redlatch.pod" -}}
# Kubernetes would set REDLATCH_PORT for the service of this name.
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
# Longer than shutdown-timeout, 10 seconds.
terminationGracePeriodSeconds: 30
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What both kinds of containers have, but variables, probes and volumes. */}}
{{- define "redlatch.container" -}}
name: redlatch
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
ports:
  - {name: redis, containerPort: 6379}
  - {name: http, containerPort: 9379}
  {{- if .Values.tls.secret }}
  - {name: tls, containerPort: 6380}
  {{- end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "redlatch.env" -}}
{{- if .Values.auth.secret }}
- name: REDLATCH_REQUIREPASS
  valueFrom:
    secretKeyRef: {name: {{ .Values.auth.secret | quote }}, key: {{ .Values.auth.key | quote }}}
{{- else if not .Values.acl.secret }}
{{- fail "auth.secret or acl.secret must name a secret: without both, anybody could log in" }}
{{- else }}
# Other pods are refused while the ACL file leaves `default` without a password. The image turns this off.
- {name: REDLATCH_PROTECTED_MODE, value: "yes"}
{{- end }}
# Metrics and health. Probes and Prometheus name the address of the pod. /metrics asks for the password: Prometheus
# sends it by basic_auth, without a username.
- {name: REDLATCH_HTTP_PORT, value: "9379"}
- {name: REDLATCH_HTTP_BIND, value: "0.0.0.0"}
{{- if .Values.tls.secret }}
- {name: REDLATCH_TLS_PORT, value: "6380"}
- {name: REDLATCH_TLS_CERT_FILE, value: /etc/redlatch/tls/tls.crt}
- {name: REDLATCH_TLS_KEY_FILE, value: /etc/redlatch/tls/tls.key}
{{- if .Values.tls.clients }}
- {name: REDLATCH_TLS_CA_CERT_FILE, value: /etc/redlatch/tls/ca.crt}
{{- else }}
- {name: REDLATCH_TLS_AUTH_CLIENTS, value: "no"}
{{- end }}
{{- end }}
{{- if .Values.acl.secret }}
- {name: REDLATCH_ACLFILE, value: {{ printf "/etc/redlatch/acl/%s" .Values.acl.key | quote }}}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: REDLATCH_{{ $name | upper | replace "-" "_" }}
  {{- /* Helm reads numbers as floats, and writes a million as 1e+06. */}}
  {{- $isWhole := and (kindIs "float64" $value) (eq (floor $value) $value) }}
  value: {{ ternary (int64 $value) $value $isWhole | toString | quote }}
{{- end }}
{{- end -}}

{{/* The secrets, which the user of the pod alone may read, and what the user adds. */}}
{{- define "redlatch.mounts" -}}
{{- if .Values.tls.secret }}
- {name: tls, mountPath: /etc/redlatch/tls, readOnly: true}
{{- end }}
{{- if .Values.acl.secret }}
- {name: acl, mountPath: /etc/redlatch/acl, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "redlatch.volumes" -}}
{{- if .Values.tls.secret }}
- name: tls
  secret: {secretName: {{ .Values.tls.secret | quote }}, defaultMode: 0440}
{{- end }}
{{- if .Values.acl.secret }}
- name: acl
  secret: {secretName: {{ .Values.acl.secret | quote }}, defaultMode: 0440}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
