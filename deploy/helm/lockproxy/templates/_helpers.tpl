{{- define "lockproxy.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "lockproxy.selector" -}}
app.kubernetes.io/name: lockproxy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lockproxy.labels" -}}
{{ include "lockproxy.selector" . }}
{{ include "lockproxy.origin" . }}
{{- end -}}

{{- define "lockproxy.origin" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- /* The labels of the pod of helm test, which no Service and no budget is to take for a lockproxy. */ -}}
{{- define "lockproxy.test" -}}
app.kubernetes.io/name: lockproxy-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lockproxy.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "lockproxy.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "lockproxy.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{- /* The port of the setting tls-listen; empty: there is none. */ -}}
{{- define "lockproxy.tlsPort" -}}
{{- with get (.Values.settings | default dict) "tls-listen" -}}
{{- regexFind "[0-9]+$" (include "lockproxy.value" .) -}}
{{- end -}}
{{- end -}}

{{- /* "yes" if others than this pod may come to the page for operators, which then asks who they are. */ -}}
{{- define "lockproxy.adminOpen" -}}
{{- if .Values.admin.enabled -}}
{{- $given := merge dict (.Values.secretFiles | default dict) (.Values.settings | default dict) -}}
{{- if or (hasKey $given "admin-token-file") (hasKey $given "admin-view-token-file") (hasKey $given "admin-tls-client-ca") }}yes{{ end -}}
{{- end -}}
{{- end -}}

{{- /* A value of a setting as lockproxy reads it: YAML has made a boolean of no and of off, and a list of [a, b]; Helm a float of 1000000. */ -}}
{{- define "lockproxy.value" -}}
{{- if kindIs "bool" . -}}
{{- ternary "yes" "no" . -}}
{{- else if kindIs "float64" . -}}
{{- if eq . (floor .) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- else if kindIs "slice" . -}}
{{- join "," . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{- define "lockproxy.variable" -}}
LOCKPROXY_{{ . | upper | replace "-" "_" }}
{{- end -}}
