-- requires: setting_latest
-- grain: one row
-- signals: level 0
CREATE VIEW weights AS
WITH told AS (
  SELECT
    max(lower(value)) FILTER (key IN ('quantization', 'quantize')) AS scheme,
    -- these engines put in what the model's own files say
    bool_or(key IN ('quantization', 'quantize') AND origin = 'effective' AND engine IN ('vllm', 'tgi')) AS resolved,
    bool_or(key = 'weight_only_compression' AND lower(value) = 'true') AS alone,
    nullif(max(lower(regexp_extract(value, '"quant_method"\s*:\s*"([\w.-]+)"', 1))) FILTER (key = 'model_config'), '') AS stored,
    string_agg(lower(value), ' ') FILTER (key IN ('model', 'model_path', 'model_id', 'hf_repo', 'hf_file')) AS model
  FROM setting_latest
), named AS (
  SELECT *, coalesce(nullif(nullif(scheme, 'none'), ''), stored) AS method FROM told
)
SELECT
  1 AS n,
  CASE
    WHEN alone THEN 'yes'
    WHEN regexp_matches(method, '^(awq|gptq|bitsandbytes|bnb|marlin|auto[-_]?round|hqq|aqlm|quip|squeezellm|eetq|exl\d|experts_int8|moe_wna16|w[48]a16|int4)') THEN 'yes'
    WHEN regexp_matches(method, '^(fp8|fbgemm_fp8|ptpc_fp8|modelopt|nvfp4|w8a8)') THEN 'no'
    -- a method of many kinds, or none told: the model's name often says which
    WHEN regexp_matches(model, '(^|[-_./: ])(w[48]a16|awq|gptq|int4|nf4|bnb|4bit|autoround|i?q[1-8]_[0-9kx]\w*)([-_./: ]|$)') THEN 'yes'
    WHEN regexp_matches(model, '(^|[-_./: ])(w8a8|w4a4|fp8|nvfp4|bf16|f16|fp16|f32)([-_./: ]|$)') THEN 'no'
    WHEN method = 'gguf' OR regexp_matches(model, 'gguf([-_./: ]|$)') THEN 'yes'
    WHEN scheme = 'none' AND resolved AND stored IS NULL THEN 'no'
  END AS weight_only_quantization
FROM named
WHERE weight_only_quantization IS NOT NULL;
COMMENT ON VIEW weights IS 'How the weights lie in memory, by the engine''s settings, the model''s configuration and its name.';
COMMENT ON COLUMN weights.weight_only_quantization IS 'yes: weights are narrow and the arithmetic is not (AWQ, GPTQ, int4, GGUF, 8-bit floats on a device that lacks them); no: both are, or neither; NULL where the method is of both kinds and the name does not tell';
